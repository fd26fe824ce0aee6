"""Who may ask for units of a sale that does not take everybody: passes, what they are got for, and access codes."""
