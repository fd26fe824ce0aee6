"""A crowd that floods the shop over HTTP and a verdict on what it saw. Never imported by the shop."""
