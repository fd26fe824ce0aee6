"""Stock, its ledger, the line and the lock. Knows no HTTP, no price, no process."""
