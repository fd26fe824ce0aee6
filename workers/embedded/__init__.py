"""Runs servers and workers as child processes, with their files and logs. Ends whatever it started."""
