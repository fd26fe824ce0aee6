"""Other ways to sell the same goods, to compare with. Never part of the shop: production refuses their settings."""
