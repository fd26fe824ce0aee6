"""What a process counts of its own work, and the page on which Prometheus reads it."""
