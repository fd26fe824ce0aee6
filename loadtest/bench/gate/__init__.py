"""Measures the gate: admissions, sold-out answers, the way from an ask to its decision."""
