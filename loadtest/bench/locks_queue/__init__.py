"""Measures locks and queues against other libraries."""
