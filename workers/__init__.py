"""The processes that settle, serve and supervise. Nobody imports them; manage.py starts them."""
