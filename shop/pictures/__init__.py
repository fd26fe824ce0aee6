"""The pictures of products: what is taken, where it is kept, and how a browser gets it."""
