"""Tickets that anybody can check, and the keys that sign them and the public logs (docs/checkable-line.md)."""
