"""What is done once a database was restored from a backup: pause, bring back what is safe, name the rest."""
