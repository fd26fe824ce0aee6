"""The processes that settle, serve and supervise. No other package imports them; manage.py starts them."""
