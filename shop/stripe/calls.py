"""Opens the way to Stripe's API: one client of the official library a process, with timeouts. Every failure is one of
our errors. Never calls a host other than the one of the settings, never waits without an end.

The library sends a call whose answer was lost once more, with the same idempotency key.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache

import stripe
import structlog
from django.conf import settings

from inventory.exceptions import InvalidRequest, Unavailable

log = structlog.get_logger(__name__)

# Twice this and a pause is shorter than a page waits for an answer.
CONNECT_SECONDS, ANSWER_SECONDS = 3.0, 4.0
RETRIES = 1


@contextmanager
def stripe_client() -> Iterator[stripe.StripeClient]:
    """Lend the client. Raises Unavailable when Stripe is off or does not answer, InvalidRequest when it refuses."""
    if not settings.STRIPE_KEY:
        raise Unavailable("Stripe is off: FAIRDROP_STRIPE_KEY is not set")
    try:
        yield _client(settings.STRIPE_KEY, settings.STRIPE_API)
    except (stripe.InvalidRequestError, stripe.IdempotencyError) as error:
        log.error("Stripe refused a call", action="stripe_refused", error=repr(error))
        raise InvalidRequest("the payment provider refused this payment; nothing was charged") from error
    except stripe.StripeError as error:
        # Also a key that is not valid any more: no buyer can help it, and the same call may work later.
        log.warning("Stripe did not answer", action="stripe_unavailable", error=repr(error))
        raise Unavailable("the payment provider does not answer; nothing was charged") from error


@lru_cache(maxsize=1)
def _client(key: str, address: str) -> stripe.StripeClient:
    return stripe.StripeClient(
        key,
        base_addresses={"api": address},
        http_client=stripe.RequestsClient(timeout=(CONNECT_SECONDS, ANSWER_SECONDS)),
        max_network_retries=RETRIES,
    )
