"""The HTTP server of the gate: bytes, limits, threads, batches. Knows nothing of sales."""
