"""The demo: a whole shop on servers of its own, a crowd, a verdict. Never for production."""
