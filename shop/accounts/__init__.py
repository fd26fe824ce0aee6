"""Which member of staff is let in: password, second factor, sessions that end; and the log of all that."""
