"""What every benchmark shares: the command, the servers, the machine's disturbance, reports and charts."""
