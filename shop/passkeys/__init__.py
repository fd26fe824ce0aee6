"""Passkeys (WebAuthn) of staff: their table, and the two ceremonies with a browser, setting one up and showing one."""
