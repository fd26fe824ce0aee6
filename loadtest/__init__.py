"""A flood over HTTP, and the verdict on what it saw. Never imported by the shop."""
