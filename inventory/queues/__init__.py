"""The articles' queue, and the check of every kind of queue."""
