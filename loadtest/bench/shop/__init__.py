"""Measures the whole shop: sustained, spike, sold out, overload, cost."""
