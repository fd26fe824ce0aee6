"""The line of each SKU in Redis: who asked, in which order, and what became of it."""
