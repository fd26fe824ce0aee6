"""What a web process knows of each sale without asking: its card, its figures, its list. Never decides an admission."""
