"""What is written down while a run goes on, and read again afterwards. Judges nothing."""
