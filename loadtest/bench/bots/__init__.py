"""The bot lab: people and a robber come to the same sale, without defences and with each, and what each got of it."""
