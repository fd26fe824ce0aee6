"""What a process counts of its own work, the page on which Prometheus reads it, and the spans of single requests."""
