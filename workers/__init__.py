"""The hands: the processes that settle, serve and supervise. Nobody imports them; manage.py starts them."""
