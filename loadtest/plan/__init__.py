"""What a run shall do: options, people, arrivals. Sends nothing."""
