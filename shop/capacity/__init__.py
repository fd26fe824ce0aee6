"""What a planned sale needs, computed from what benchmarks measured. Never looks at a running shop."""
