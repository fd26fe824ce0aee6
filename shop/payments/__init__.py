"""Payments and refunds, and the providers that carry them out."""
