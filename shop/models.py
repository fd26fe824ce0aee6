"""What is offered and when, what was decided, what was paid, and what staff did. Holds no logic beyond naming a state.
Never writes stock. Orders and payments are written by statements of their own (orders, holds, payments, refunds).
"""

from __future__ import annotations

import secrets
from datetime import datetime, timedelta
from typing import ClassVar, TypeVar

from django.contrib.postgres.constraints import ExclusionConstraint
from django.contrib.postgres.fields import RangeOperators
from django.core.validators import MinValueValidator
from django.db import models
from django.db.models import F, Func, Q, Value
from django.db.models.functions import Now, Upper
from django.db.models.lookups import LessThan
from django.utils.translation import get_language, gettext, gettext_noop

from inventory.models import Stock
from inventory.states import State

Moment = TypeVar("Moment", datetime, float)


def new_request_key() -> str:
    """Return 32 random hex digits: the key of one sale's request ids."""
    return secrets.token_hex(16)


def sale_state(operator_state: str, *, opens: Moment, closes: Moment, moment: Moment) -> str:
    """Return scheduled, open, paused or closed; the three moments are all aware datetimes, or all Unix seconds."""
    if operator_state == "closed" or moment >= closes:
        return "closed"
    if moment < opens:
        return "scheduled"
    return "paused" if operator_state == "paused" else "open"


def open_at(moment: datetime) -> Q:
    """Return the condition under which `sale_state` says "open"."""
    return Q(opens_at__lte=moment, closes_at__gt=moment, operator_state="on")


# Of a sale: its window is its own. One that staff closed never opens again, so its window is free.
HAS_WINDOW = ~Q(operator_state="closed")


def in_reader_language(english: str, chinese: str) -> str:
    """Return the text of the language that is active, the other one when there is none."""
    return chinese or english if get_language() == "zh-hans" else english or chinese


class TimeRange(Func):
    """tstzrange(lower, upper, '[)') in SQL, for the exclusion constraint."""

    function = "TSTZRANGE"


class OnePoint(Func):
    """int8range(id, id, '[]') in SQL: lets a GiST constraint compare a plain number without an extension."""

    function = "INT8RANGE"


class InUtc(Func):
    """moment AT TIME ZONE 'UTC' in SQL: an index may add an interval to it, whatever time zone a session has."""

    template = "(%(expressions)s AT TIME ZONE 'UTC')"
    output_field = models.DateTimeField()


# How long a provider lets a buyer pay a charge; a payment that is older is begun again.
CHARGE_LIFE = timedelta(days=1)
# The charge is made within CHARGE_LIFE of its payment and ends within another one: what was not collected by then never
# will be.
LAST_CAPTURE = 2 * CHARGE_LIFE
# Of a payment: nothing was heard of it yet, or it was declined when last asked about and may still be paid.
# The row alone decides, so an index can have it as its condition.
STILL_ASKED_ABOUT = Q(state="pending") | Q(LessThan(F("changed_at") - F("created_at"), LAST_CAPTURE), state="declined")
# Of a payment: its provider was not told yet that the hold is over.
NOT_ENDED = Q(state="pending", reason="")
# Of a notice: a card was declined. These are counted (payments/tries.py).
OF_DECLINED_CARD = Q(kind__in=("declined", "card_declined"))
# When the provider is asked next: as long after the last question as the payment was old then.
NEXT_QUESTION = InUtc(F("changed_at")) + (F("changed_at") - F("created_at"))


# An order in one of these never had units; in a sold-out sale that is nearly all of them.
WITHOUT_UNITS = (State.SOLD_OUT.value, State.REFUSED.value)
HAS_UNITS = ~Q(state__in=WITHOUT_UNITS)


class Product(models.Model):
    """A thing people line up for; its units are counted by one Stock row."""

    slug = models.SlugField(max_length=40, unique=True)
    title = models.CharField(max_length=80)
    tagline = models.CharField(max_length=120, blank=True)
    description = models.TextField(blank=True)
    # For readers of Chinese; the other text stands in for one that is empty (in_reader_language).
    tagline_zh = models.CharField("tagline in Chinese", max_length=120, blank=True, default="", db_default="")
    description_zh = models.TextField("description in Chinese", blank=True, default="", db_default="")
    # One that was uploaded (shop/pictures/keeping.py), or the path of a file under static/.
    picture = models.CharField(max_length=80, blank=True)
    list_price = models.DecimalField(max_digits=10, decimal_places=2, validators=[MinValueValidator(0)])
    stock = models.OneToOneField(Stock, on_delete=models.PROTECT, related_name="product")

    def __str__(self) -> str:
        return self.title


class Sale(models.Model):
    """A SKU offered in a time window; two sales of one SKU never overlap (an exclusion constraint).

    A sale that staff closed has no window any more: another one may take it.
    """

    class OperatorState(models.TextChoices):
        ON = "on", "on"
        PAUSED = "paused", "paused"
        CLOSED = "closed", "closed"

    class PassMode(models.TextChoices):
        NEVER = "never", "never"
        ALWAYS = "always", "always"
        RUSH = "rush", "in a rush"

    class EmailMode(models.TextChoices):
        NEVER = "never", "never"
        VERIFIED = "verified", "always"
        ONCE = "once", "always, and one request for each"

    slug = models.SlugField(max_length=60, unique=True)
    product = models.ForeignKey(Product, on_delete=models.PROTECT, related_name="sales")
    stock = models.ForeignKey(Stock, on_delete=models.PROTECT, related_name="sales")
    title = models.CharField(max_length=80)
    title_zh = models.CharField("title in Chinese", max_length=80, blank=True, default="", db_default="")
    price = models.DecimalField(max_digits=10, decimal_places=2, validators=[MinValueValidator(0)])
    currency = models.CharField(max_length=3, default="EUR")
    opens_at = models.DateTimeField()
    closes_at = models.DateTimeField()
    per_buyer_limit = models.PositiveSmallIntegerField(default=1, validators=[MinValueValidator(1)])
    # Units for which one network (/24, of IPv6 /48) is let in. NULL: as sales.catalogue.network_limit says; 0: any.
    per_network_limit = models.PositiveIntegerField(null=True, blank=True)
    # Whether a request needs a pass; a rush is from so many requests, or tokens by the API, a second in a process.
    pass_mode = models.CharField(
        "pass", max_length=6, choices=PassMode.choices, default=PassMode.NEVER, db_default=PassMode.NEVER
    )
    pass_rush = models.PositiveIntegerField(default=50, db_default=50, validators=[MinValueValidator(1)])
    codes_required = models.BooleanField("an access code is needed", db_default=False, default=False)
    # Whether a request needs an e-mail address that its buyer can read, and whether each address lets in one alone.
    email_mode = models.CharField(
        "verified e-mail", max_length=8, choices=EmailMode.choices, default=EmailMode.NEVER, db_default=EmailMode.NEVER
    )
    # Names the list of the addresses that alone may enter (ListedEmail), as their proofs do; '': any address may.
    email_list = models.CharField(max_length=6, blank=True, default="", db_default="", editable=False)
    # From then on neither the list nor a code is asked for. NULL: they are until the end.
    public_at = models.DateTimeField("for everybody from", null=True, blank=True)
    hold_seconds = models.PositiveIntegerField(default=600, validators=[MinValueValidator(1)])
    # Units that may queue beyond the stock, so that a request the database refuses leaves no unit unsold.
    line_capacity = models.PositiveIntegerField(default=200, db_column="room")
    # What staff set, whatever the time is; pages and the log of acts call it the switch.
    operator_state = models.CharField(
        "switch", max_length=6, choices=OperatorState.choices, default=OperatorState.ON, db_column="switch"
    )
    pause_reason = models.CharField(max_length=200, blank=True)
    # Then the ticket asks for a delivery address before it leads to the payment page.
    ships = models.BooleanField("goods are shipped", db_default=False, default=False)
    # Marks of the networks from which nobody is let in any more, nor with a token given there; spaces between.
    revoked_networks = models.TextField(blank=True, default="", db_default="", editable=False)
    # Rises with every change of this row (a trigger), so that Redis is never given an older row for a newer one.
    revision = models.BigIntegerField(default=1, editable=False)
    # Rises when price, currency, limit or hold time change (a trigger): what was promised is a row of SaleTerms.
    terms_version = models.BigIntegerField(default=1, editable=False)
    # The ordinal after which admissions go on since Redis was last found empty; NULL: the sale was never primed.
    ordinal_base = models.BigIntegerField(null=True, editable=False)
    # Makes request ids of this sale, and the pseudonyms of its log. Never changes while somebody may ask again, so a
    # retry after a key rotation is still the same request; a random one replaces it when its buyers are forgotten.
    request_key = models.CharField(max_length=32, default=new_request_key, editable=False)
    # Since then only the database knows it, and nobody primes it again (shop/staff/retiring.py).
    retired_at = models.DateTimeField(null=True, blank=True, editable=False)
    # Since then its orders name nobody: KEEP_ORDERS_DAYS after its end (workers/reconciler/retention.py).
    buyers_forgotten_at = models.DateTimeField(null=True, blank=True, editable=False)

    class Meta:
        ordering = ["opens_at", "slug"]
        # What may be done to a sale while it runs; each act of the control room asks for one of them.
        permissions = [
            ("open_sale", gettext_noop("Can open a sale before its time")),
            ("pause_sale", gettext_noop("Can pause and resume a sale")),
            ("close_sale", gettext_noop("Can close a sale for good")),
            ("revoke_network", gettext_noop("Can revoke the tokens of a network in a sale")),
            ("change_stock", gettext_noop("Can restock and adjust the stock of a sale")),
            ("retry_dead_letter", gettext_noop("Can put dead letters back in line")),
            ("discard_dead_letter", gettext_noop("Can discard dead letters")),
            ("reconcile_sale", gettext_noop("Can have a sale's stores compared and mended")),
            ("retire_sale", gettext_noop("Can retire a sale that is over")),
            ("make_codes", gettext_noop("Can make access codes for a sale")),
        ]
        # Read by every web process once a second, what is retired costs it nothing; and past sales, by their end.
        indexes = [
            models.Index(fields=["opens_at", "slug"], condition=Q(retired_at__isnull=True), name="sale_not_retired"),
            models.Index(fields=["closes_at"], name="sale_by_end"),
        ]
        constraints = [
            models.CheckConstraint(condition=Q(closes_at__gt=F("opens_at")), name="sale_ends_after_it_begins"),
            models.CheckConstraint(condition=Q(per_buyer_limit__gte=1), name="sale_limit_at_least_one"),
            models.CheckConstraint(condition=Q(price__gte=0), name="sale_price_not_negative"),
            ExclusionConstraint(
                name="sales_of_one_sku_never_overlap",
                expressions=[
                    (OnePoint("stock", "stock", Value("[]")), RangeOperators.OVERLAPS),
                    (TimeRange("opens_at", "closes_at", Value("[)")), RangeOperators.OVERLAPS),
                ],
                condition=HAS_WINDOW,
            ),
        ]

    def __str__(self) -> str:
        return self.slug

    @property
    def shown_title(self) -> str:
        """The title in the language that is active."""
        return in_reader_language(self.title, self.title_zh)

    def state_at(self, moment: datetime) -> str:
        """Return scheduled, open, paused or closed as of `moment` (an aware datetime)."""
        return sale_state(self.operator_state, opens=self.opens_at, closes=self.closes_at, moment=moment)


class AccessCode(models.Model):
    """A code that lets into a sale, as its HMAC alone: what was handed out is kept nowhere."""

    sale = models.ForeignKey(Sale, on_delete=models.PROTECT, related_name="access_codes")
    digest = models.CharField(max_length=64)
    # What its uses are counted in: requests, or the units of them.
    counts_units = models.BooleanField(default=False)
    uses = models.PositiveIntegerField()
    left = models.PositiveIntegerField()
    batch = models.CharField(max_length=60)
    made_at = models.DateTimeField(db_default=Now())

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["sale", "digest"], name="code_once_per_sale"),
            models.CheckConstraint(condition=Q(left__lte=F("uses")), name="code_left_at_most_its_uses"),
        ]

    def __str__(self) -> str:
        return f"{self.batch} {self.pk}"


class ListedEmail(models.Model):
    """An address on the list of a sale, as its HMAC alone."""

    sale = models.ForeignKey(Sale, on_delete=models.PROTECT, related_name="listed_emails")
    digest = models.CharField(max_length=64)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["sale", "digest"], name="address_once_per_list")]

    def __str__(self) -> str:
        return str(self.pk)


class CodeUse(models.Model):
    """A request that a code was shown for; it keeps its uses, whatever becomes of it."""

    code = models.ForeignKey(AccessCode, on_delete=models.PROTECT, related_name="shown_for")
    request_id = models.CharField(max_length=40)
    uses = models.PositiveIntegerField()
    at = models.DateTimeField(db_default=Now())

    class Meta:
        constraints = [models.UniqueConstraint(fields=["request_id"], name="one_code_per_request")]

    def __str__(self) -> str:
        return self.request_id


class Order(models.Model):
    """One decided request. Its id rises in the order of decisions, so seq and id agree within a SKU (I8)."""

    # Which columns say something about a person: shop/orders/personal_data.py exports and forgets them.
    personal: ClassVar = ("buyer", "network")

    request_id = models.CharField(max_length=40)
    # Triggers keep the reference, once a statement: a foreign key checks each row. Its own index would be the beginning
    # of the one on sale and buyer.
    sale = models.ForeignKey(Sale, on_delete=models.PROTECT, related_name="orders", db_index=False, db_constraint=False)
    buyer = models.CharField(max_length=40)
    quantity = models.PositiveIntegerField()
    # The sale's limit when this was decided: lowering it later makes nobody a cheat (I7).
    buyer_limit = models.PositiveSmallIntegerField()
    seq = models.BigIntegerField()
    state = models.CharField(max_length=10, choices=[(s.value, s.value) for s in State])
    # The actor that brought it into this state, and why; each change is a row of OrderEvent as well (a trigger).
    actor = models.CharField(max_length=150, db_default="settler")
    reason = models.CharField(max_length=200, blank=True)
    changed_at = models.DateTimeField(db_default=Now())
    # Its place was lost with Redis and brought back by its ticket, or it was a dead letter that staff put back: it may
    # be decided after later ones (I8).
    restored = models.BooleanField(db_default=False)
    # It waited on standby: smaller ones that came later may be decided before it (I8).
    standby = models.BooleanField(db_default=False)
    unit_price = models.DecimalField(max_digits=10, decimal_places=2)
    currency = models.CharField(max_length=3)
    hold_expires_at = models.DateTimeField(null=True, blank=True)
    decided_at = models.DateTimeField(db_default=Now())
    # Of the terms under which its place was given, and its number among the admissions of its sale; NULL: from before
    # requests had them.
    terms_version = models.BigIntegerField(null=True)
    ordinal = models.BigIntegerField(null=True)
    # Personal data: a mark of the network that asked, of one that got units; '': it is not known, or was deleted
    # (orders/marks.py).
    network = models.CharField(max_length=12, blank=True, default="", db_default="")

    class Meta:
        ordering = ["-id"]
        permissions = [
            ("cancel_order", gettext_noop("Can cancel a held order")),
            ("refund_order", gettext_noop("Can refund a paid order")),
            ("void_order", gettext_noop("Can void orders before shipping, and look for what belongs together")),
            ("mail_order", gettext_noop("Can send an order's link to its buyer, and delete their address")),
        ]
        constraints = [
            # Not `unique=True`, which would bring a second index for LIKE: every index is paid for by each order.
            models.UniqueConstraint(fields=["request_id"], name="order_once_per_request"),
            models.CheckConstraint(condition=Q(quantity__gte=1), name="order_of_at_least_one"),
            models.CheckConstraint(
                condition=~Q(state="held") | Q(hold_expires_at__isnull=False), name="order_held_has_an_end"
            ),
            models.CheckConstraint(
                condition=Q(state__in=["held", "paid", "expired", "cancelled", "sold_out", "refused", "refunded"]),
                name="order_state_is_known",
            ),
        ]
        indexes = [
            models.Index(fields=["sale", "buyer"], name="order_by_sale_and_buyer"),
            # For the page of what a buyer has. An order that never had units costs it nothing.
            models.Index(fields=["buyer", "id"], condition=HAS_UNITS, name="order_with_units_by_buyer"),
            # For the page of what belongs together, and for the deletion of marks.
            models.Index(fields=["sale", "network"], condition=~Q(network=""), name="order_with_network_by_sale"),
            # The sweep's: small, because a hold leaves it when it ends.
            models.Index(fields=["hold_expires_at"], condition=Q(state="held"), name="order_held_by_its_end"),
            # For the first end of each sale's holds, which every web process reads once a second.
            # An expression, so that the sweep's plan is never tempted by it.
            models.Index(
                "sale", InUtc("hold_expires_at"), condition=Q(state="held"), name="order_held_by_sale_and_end"
            ),
        ]

    def __str__(self) -> str:
        return self.request_id


class OrderEvent(models.Model):
    """One change of an order's state, written by a trigger with the change itself, and never changed (I13)."""

    # No foreign key in the database: the trigger copies the id from the order, and a check a row would cost.
    order = models.ForeignKey(Order, on_delete=models.DO_NOTHING, related_name="events", db_constraint=False)
    from_state = models.CharField(max_length=10)
    to_state = models.CharField(max_length=10)
    at = models.DateTimeField()
    actor = models.CharField(max_length=150)
    reason = models.CharField(max_length=200, blank=True)

    class Meta:
        ordering = ["id"]
        indexes = [
            # For revenue: only the changes by which money came or went; the others cost it nothing.
            models.Index(fields=["at"], condition=Q(to_state="paid") | Q(from_state="paid"), name="event_of_money"),
        ]

    def __str__(self) -> str:
        return f"{self.from_state} → {self.to_state}"


class TicketLink(models.Model):
    """How often the secret link of a request was replaced; without a row it still has its first one."""

    request_id = models.CharField(max_length=40, primary_key=True)
    generation = models.PositiveIntegerField(default=1)
    changed_at = models.DateTimeField(db_default=Now())

    def __str__(self) -> str:
        return self.request_id


class Contact(models.Model):
    """Where the news of one request go. Personal data: nothing else keeps an address, but the mails to it.

    The row stays without an address when it was deleted, so that the mails of one request stay few.
    """

    personal: ClassVar = ("address", "language", "root")

    request_id = models.CharField(max_length=40)
    address = models.EmailField(blank=True)
    language = models.CharField(max_length=10, blank=True)
    # Where its buyer reached the shop: a worker that writes a mail has no call to read it from.
    root = models.CharField(max_length=200, blank=True)
    # The last change of the order that was told, or that its buyer had seen before the address was given.
    told_event = models.BigIntegerField(default=0)
    is_warned = models.BooleanField(default=False)
    # Decided, and not held any more: only a late payment or a refund may still be told.
    is_over = models.BooleanField(default=False)
    link_mails = models.PositiveSmallIntegerField(default=0)
    created_at = models.DateTimeField(db_default=Now())

    class Meta:
        constraints = [models.UniqueConstraint(fields=["request_id"], name="contact_once_per_request")]
        indexes = [
            models.Index(fields=["is_over", "id"], name="contact_to_look_at"),
            models.Index(Upper("address"), name="contact_by_address"),  # staff search by a whole address
        ]

    def __str__(self) -> str:
        return self.request_id


class DeliveryAddress(models.Model):
    """Where the goods of one request go. Personal data: nothing else keeps it, and it is deleted as a whole row."""

    personal: ClassVar = ("name", "lines", "postcode", "city", "country")

    request_id = models.CharField(max_length=40)
    name = models.CharField(max_length=100)
    # Street and what belongs to it, as they stand on the parcel: up to four lines.
    lines = models.CharField(max_length=300)
    postcode = models.CharField(max_length=20, blank=True)
    city = models.CharField(max_length=100)
    country = models.CharField(max_length=80)
    changed_at = models.DateTimeField(db_default=Now())

    class Meta:
        verbose_name_plural = "delivery addresses"
        constraints = [models.UniqueConstraint(fields=["request_id"], name="delivery_once_per_request")]

    def __str__(self) -> str:
        return self.request_id


class SaleTerms(models.Model):
    """What a sale promised under one version: a trigger writes it once, with the change of the sale, and never again.

    until_us: only of versions from before requests named theirs: those with a lower seq came under them.
    """

    sale = models.ForeignKey(Sale, on_delete=models.CASCADE, related_name="terms")
    version = models.BigIntegerField()
    until_us = models.BigIntegerField(null=True)
    price = models.DecimalField(max_digits=10, decimal_places=2)
    currency = models.CharField(max_length=3)
    per_buyer_limit = models.PositiveSmallIntegerField()
    hold_seconds = models.PositiveIntegerField()

    class Meta:
        ordering = ["version"]
        verbose_name_plural = "sale terms"
        constraints = [models.UniqueConstraint(fields=["sale", "version"], name="terms_once_per_version")]

    def __str__(self) -> str:
        return f"{self.sale_id} version {self.version}"


class TermsTemplate(models.Model):
    """Terms that staff keep under a name, to begin a sale with. A sale copies them, and does not know where from."""

    name = models.CharField(max_length=60, unique=True)
    price = models.DecimalField(max_digits=10, decimal_places=2, validators=[MinValueValidator(0)])
    currency = models.CharField(max_length=3, default="EUR")
    per_buyer_limit = models.PositiveSmallIntegerField(default=1, validators=[MinValueValidator(1)])
    hold_seconds = models.PositiveIntegerField(default=600, validators=[MinValueValidator(1)])
    line_capacity = models.PositiveIntegerField(default=200, db_column="room")

    class Meta:
        ordering = ["name"]
        verbose_name = "template of terms"
        verbose_name_plural = "templates of terms"

    def __str__(self) -> str:
        return self.name


class StaffAct(models.Model):
    """What somebody of the staff did, when and why. Written once, with the act itself. sale: None for an act that is
    of no sale, such as a login."""

    sale = models.ForeignKey(Sale, on_delete=models.PROTECT, related_name="acts", null=True)
    act = models.CharField(max_length=20)
    actor = models.CharField(max_length=150)
    reason = models.CharField(max_length=200, blank=True)
    detail = models.CharField(max_length=200, blank=True)
    at = models.DateTimeField(db_default=Now())

    class Meta:
        ordering = ["-id"]

    def __str__(self) -> str:
        return gettext("%(act)s by %(actor)s") % {"act": gettext(self.act), "actor": self.actor}


class SaleSample(models.Model):
    """How a sale stood from one moment to another, as the reconciler saw it; a row begins when a figure changes.

    Between two rows nobody looked. They are few: of a long history every second row goes into the one before it.
    """

    sale = models.ForeignKey(Sale, on_delete=models.CASCADE, related_name="samples", db_index=False)
    since = models.DateTimeField()
    until = models.DateTimeField()
    available = models.PositiveIntegerField()
    held = models.PositiveIntegerField()
    sold = models.PositiveIntegerField()
    # Requests without a decision, and decisions a second; NULL: Redis did not tell.
    waiting = models.PositiveIntegerField(null=True)
    rate = models.FloatField(null=True)
    # From ask to decision, in ms, of those that were not waitlisted; NULL: none was decided.
    p50_ms = models.FloatField(null=True)
    p99_ms = models.FloatField(null=True)

    class Meta:
        ordering = ["since"]
        constraints = [models.UniqueConstraint(fields=["sale", "since"], name="sample_once_per_moment")]

    def __str__(self) -> str:
        return f"{self.sale_id} since {self.since}"


class Payment(models.Model):
    """One attempt to pay for an order. amount and currency are the order's own, never what a client says."""

    personal: ClassVar = ("card",)

    class State(models.TextChoices):
        PENDING = "pending", "pending"  # begun; nothing heard
        CAPTURED = "captured", "captured"  # the money is ours
        DECLINED = "declined", "declined"
        REFUND_DUE = "refund_due", "refund due"  # the money must go back; asked of the provider until it is done
        REFUNDED = "refunded", "refunded"

    order = models.ForeignKey(Order, on_delete=models.PROTECT, related_name="payments")
    provider = models.CharField(max_length=20)
    # Our name for it, told to the provider: beginning the same payment twice is beginning it once.
    reference = models.CharField(max_length=64, unique=True)
    amount = models.DecimalField(max_digits=16, decimal_places=2)
    currency = models.CharField(max_length=3)
    state = models.CharField(max_length=10, choices=State.choices, default=State.PENDING)
    reason = models.CharField(max_length=200, blank=True)
    # Personal data: the provider's fingerprint of the card, the same for the same card; '' where it gives none. Deleted
    # as addresses are (orders/marks.py).
    card = models.CharField(max_length=64, blank=True, default="", db_default="")
    created_at = models.DateTimeField(db_default=Now())
    changed_at = models.DateTimeField(db_default=Now())

    class Meta:
        ordering = ["id"]
        constraints = [
            models.CheckConstraint(condition=Q(amount__gte=0), name="payment_amount_not_negative"),
            # One payment at most pays an order; a second capture is refund_due from the beginning.
            models.UniqueConstraint(
                fields=["order"], condition=Q(state="captured"), name="payment_captured_once_per_order"
            ),
        ]
        indexes = [
            # Each the size of what is open: an old payment that was answered is in none of them.
            models.Index(NEXT_QUESTION, condition=STILL_ASKED_ABOUT, name="payment_asked_about"),
            models.Index(fields=["changed_at"], condition=Q(state="refund_due"), name="payment_refund_due"),
            models.Index(fields=["order"], condition=NOT_ENDED, name="payment_not_ended"),
            # For the deletion of fingerprints.
            models.Index(fields=["created_at"], condition=~Q(card=""), name="payment_with_card"),
        ]

    def __str__(self) -> str:
        return self.reference


class PaymentNotice(models.Model):
    """One message of a provider, kept by its id: the same one twice changes nothing."""

    provider = models.CharField(max_length=20)
    event_id = models.CharField(max_length=64)
    kind = models.CharField(max_length=20)
    reference = models.CharField(max_length=64)
    result = models.CharField(max_length=40)
    received_at = models.DateTimeField(db_default=Now())

    class Meta:
        ordering = ["-id"]
        constraints = [models.UniqueConstraint(fields=["provider", "event_id"], name="payment_notice_once")]
        indexes = [
            # For the timeline of an order, which shows every notice, and the count of declined cards.
            models.Index(fields=["reference"], name="payment_notice_by_reference"),
        ]

    def __str__(self) -> str:
        return f"{self.kind} {self.reference}"
