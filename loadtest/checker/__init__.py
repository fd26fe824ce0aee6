"""Judges a run by what buyers were told, what staff see and what the books say. Never asks a store."""
