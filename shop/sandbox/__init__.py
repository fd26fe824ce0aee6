"""A payment provider to play with: it has its own tables, page and signed notices, and takes no money."""
