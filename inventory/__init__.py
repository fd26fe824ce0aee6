"""The scarce thing: stock, line, lock. Knows no HTTP, no price, no process."""
