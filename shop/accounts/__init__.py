"""Lets members of staff in: password, second factor, sessions that end; and the log of all that."""
