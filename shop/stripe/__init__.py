"""Stripe as a payment provider: Checkout's page, signed events, refunds. Off until its keys are set."""
