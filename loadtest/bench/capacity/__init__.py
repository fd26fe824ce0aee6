"""Compares what a shop of some processes is predicted to do with what it does."""
