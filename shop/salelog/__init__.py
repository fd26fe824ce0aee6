"""The public log of each sale: what was published stays, and anybody can check it (docs/checkable-line.md)."""
