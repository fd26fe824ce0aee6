"""A buyer's order: asked for, held, found again, told by mail. Moves no money."""
