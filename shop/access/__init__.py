"""Who may ask for units of a sale that does not take everybody: passes, and what they are got for."""
