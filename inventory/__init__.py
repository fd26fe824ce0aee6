"""The scarce thing: stock, line, lock. Knows no HTTP, no price, no process. Called by shop and workers."""
