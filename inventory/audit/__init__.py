"""Judges the books: orders, ledger and Redis against each other and against what was promised. Changes nothing."""
