"""Measures settlement, expiry, payments and the audit alone."""
