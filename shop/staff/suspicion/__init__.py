"""What of a sale may belong together, for people to judge. Nothing here decides, scores or changes anything."""
