"""The one tree of errors: each knows its code and HTTP status, its docstring is its default text.
Never raised for a normal outcome of a request (that is a State). Raised by every floor.

FairdropError
├── InvalidRequest          400 invalid_request
├── Unauthenticated         401 unauthenticated
├── ForbiddenOrigin         403 forbidden_origin
├── PassRequired            403 pass_required
├── CodeRequired            403 code_required
├── EmailRequired           403 email_required
│   └── NotListed               the buyer's verified e-mail is not on the sale's list
├── NetworkRevoked          403 network_revoked
├── SaleNotFound            404 sale_not_found
├── RequestNotFound         404 request_not_found
├── MethodNotAllowed        405 invalid_request
├── SoldOut                 409 sold_out
├── LineFull                409 line_full
├── LimitReached            409 limit_reached
│   ├── EndedTooOften           too many requests of the buyer ended unsold
│   └── EmailUsed               the buyer's verified e-mail let another request in
├── TermsChanged            409 terms_changed
├── NotPayable              409 not_payable
├── SaleClosed              410 sale_closed
├── TooLarge                413 too_large
├── IdempotencyMismatch     422 idempotency_mismatch
├── SaleNotOpen             425 sale_not_open
├── RateLimited             429 rate_limited
│   ├── NetworkLimited          one network has as many units of a sale as one may have
│   ├── GuessesLimited          one network sent too many wrong codes
│   ├── MailsLimited            too many mails with codes were sent
│   └── PaymentsLimited         too many cards were declined
│       └── PaymentOpen             they may become too many by another payment that is open
└── Unavailable             503 unavailable
    ├── RedisUnavailable        Redis did not answer in time
    ├── LineNotTold             it is committed, but the line has not heard of it
    ├── MemoryFull              Redis is nearly full and takes nobody new
    ├── SaleNotPrimed           Redis has no state of this sale yet
    ├── StaleWrite              a row changed under this transaction; it was rolled back
    ├── UnitsNotFree            the units to be sold are not free any more
    ├── BatchDeferred           the batch stays in flight: the database is away, or settlement is broken
    ├── LockInUse               this lock object holds its lock already, or is taking it
    └── LockLost                the lock is no longer ours
        └── FenceRefused        the stock row has seen a newer holder
"""

from __future__ import annotations

from typing import Any, ClassVar


class FairdropError(Exception):
    """Something went wrong."""

    code: ClassVar[str] = "error"
    status: ClassVar[int] = 500
    retry_after_seconds: int | None = None

    def __init__(self, detail: str | None = None, **extra: Any) -> None:
        self.detail = detail or (type(self).__doc__ or "").strip()
        self.extra = extra
        super().__init__(self.detail)


class InvalidRequest(FairdropError):
    """The request is not one this shop understands."""

    code, status = "invalid_request", 400


class Unauthenticated(FairdropError):
    """A buyer token is needed: get one from POST /api/v1/buyers."""

    code, status = "unauthenticated", 401


class ForbiddenOrigin(FairdropError):
    """This call came from another site."""

    code, status = "forbidden_origin", 403


class PassRequired(FairdropError):
    """This sale asks for a pass: solve its challenge first, or wait for one. Nothing was asked for."""

    code, status = "pass_required", 403


class CodeRequired(FairdropError):
    """This sale asks for an access code. Nothing was asked for."""

    code, status = "code_required", 403


class EmailRequired(FairdropError):
    """This sale asks for a verified e-mail address. Nothing was asked for."""

    code, status = "email_required", 403


class NotListed(EmailRequired):
    """Your e-mail address was not on this sale's list when you proved it. Nothing was asked for."""

    limited = "list"


class NetworkRevoked(FairdropError):
    """The shop takes no more requests from your network in this sale. What you have in it stays yours."""

    code, status = "network_revoked", 403


class SaleNotFound(FairdropError):
    """There is no such sale."""

    code, status = "sale_not_found", 404


class RequestNotFound(FairdropError):
    """You have no such request."""

    code, status = "request_not_found", 404


class MethodNotAllowed(FairdropError):
    """This address does not take that method."""

    code, status = "invalid_request", 405


class SoldOut(FairdropError):
    """Every unit is sold; one comes back only by a refund, or if the shop adds units."""

    code, status = "sold_out", 409


class LineFull(FairdropError):
    """The line is full now; a unit may still come free: come again, or ask for standby."""

    code, status = "line_full", 409


class LimitReached(FairdropError):
    """This would be more than one buyer may have in this sale."""

    code, status = "limit_reached", 409


class EndedTooOften(LimitReached):
    """Too many of your requests in this sale ended unsold; it takes no more of yours."""

    limited = "ended"


class EmailUsed(LimitReached):
    """One request for each e-mail address in this sale, and another one came with yours."""

    limited = "email"


class TermsChanged(FairdropError):
    """The price rose, or limit or hold time fell, since the terms that this request names; nothing was asked for."""

    code, status = "terms_changed", 409


class NotPayable(FairdropError):
    """This request cannot be paid."""

    code, status = "not_payable", 409


class SaleClosed(FairdropError):
    """This sale is over."""

    code, status = "sale_closed", 410


class TooLarge(FairdropError):
    """The body is larger than 4 KiB."""

    code, status = "too_large", 413


class IdempotencyMismatch(FairdropError):
    """This Idempotency-Key was used before with another quantity."""

    code, status = "idempotency_mismatch", 422


class SaleNotOpen(FairdropError):
    """This sale is not open now."""

    code, status = "sale_not_open", 425


class RateLimited(FairdropError):
    """Too many calls: slow down."""

    code, status = "rate_limited", 429
    # What there were too many of, '' for calls: a page says it in its own words.
    limited: ClassVar[str] = ""
    retry_after_seconds = 1


class NetworkLimited(RateLimited):
    """Your network was let in for as many units of this sale as one may be; those that came back count."""

    limited = "network"
    retry_after_seconds = 30


class GuessesLimited(RateLimited):
    """Too many wrong codes came from your network: try again later."""

    limited = "codes"
    retry_after_seconds = 600


class MailsLimited(RateLimited):
    """Too many mails with a code were asked for: look into your mailbox, or come again later."""

    limited = "mails"
    retry_after_seconds = 900


class PaymentsLimited(RateLimited):
    """Too many cards were declined, and no more can be tried. Your units stay held until their end; ask the shop."""

    limited = "payments"
    retry_after_seconds = 3600


class PaymentOpen(PaymentsLimited):
    """Another payment that you began may be your last try: finish that one, or wait until its hold ends."""

    limited = "open payment"
    retry_after_seconds = 60


class Unavailable(FairdropError):
    """The shop cannot answer right now; your place, if you have one, is kept."""

    code, status = "unavailable", 503
    retry_after_seconds = 1


class RedisUnavailable(Unavailable):
    """The line did not answer in time; nothing is known to have changed."""


class LineNotTold(Unavailable):
    """What you asked for is done, but the line has not heard of it yet: ask again."""


class MemoryFull(Unavailable):
    """The shop takes no new requests right now; your place, if you have one, is kept."""

    retry_after_seconds = 5


class SaleNotPrimed(Unavailable):
    """The line of this sale is being prepared."""


class StaleWrite(Unavailable):
    """A row changed under this transaction; nothing was written."""


class UnitsNotFree(Unavailable):
    """These units are not free; nothing was written."""


class BatchDeferred(Unavailable):
    """The batch stays in flight and is settled later; nothing was written."""


class LockInUse(Unavailable):
    """This lock object is in use; each caller needs one of its own."""


class LockLost(Unavailable):
    """The lock is no longer ours; nothing was written."""


class FenceRefused(LockLost):
    """The stock row has seen a newer lock holder; nothing was written."""
