"""Measures the shop against the floors it promises. Never used by the shop itself."""
