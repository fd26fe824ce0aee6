"""Measures the shop against other ways to sell."""
