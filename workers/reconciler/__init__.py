"""Compares Redis, orders and ledger, mends what is safe, alarms on the rest. Never changes a count or money."""
