"""Checks a sale's public log from outside, as any stranger can, and shows by tampering with logs what that sees."""
