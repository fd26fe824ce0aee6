"""Locks with a fence, on one server or on several, and the names that the articles give them."""
