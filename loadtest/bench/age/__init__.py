"""Measures a shop with a past alongside one without."""
