"""Measures purchases alongside readers of live streams."""
