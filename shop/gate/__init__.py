"""The hot path in front of Django: route, token, sale state, one coalesced script call, answer. No ORM, no session."""
