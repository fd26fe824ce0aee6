"""What helps staff to set up a sale: the picture of its product, kept terms, and a look at it before it is saved."""
