"""POST /api/v1/sales/<slug>/requests: turns a wish into a place in line through one coalesced script call.
Touches the database only for a ticket, a retired sale or unknown terms; never waits without a bound. An ask whose
buyer hangs up is decided all the same.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Coroutine, Sequence
from typing import Any, NamedTuple

import structlog
from django.conf import settings

from inventory.exceptions import CodeRequired, FairdropError, LineFull, MemoryFull, SaleNotPrimed, SoldOut, Unavailable
from inventory.line import admission
from inventory.line.admission import Answer, Ask, Code, SaleLine
from inventory.records import Ticket, request_id
from inventory.redis import AsyncClient, clocks
from inventory.redis.memory import WATCH
from inventory.states import State
from inventory.telemetry import traces
from inventory.telemetry.measures import ANSWER, Histogram
from shop.access import codes, emails, passes
from shop.access.codes import NOT_SHOWN
from shop.access.passes import NOT_ASKED, AccessCheck
from shop.buyers import mark_in
from shop.client_address import Origin
from shop.gate.sales.cache import Board
from shop.gate.sales.state import SaleEntry
from shop.gate.server.coalescer import Coalescer
from shop.gate.server.rates import Rates
from shop.gate.server.threads import ThreadPool
from shop.gate.wish import read_idempotency_key, read_wish
from shop.http import buyer_of, check_json_content_type, token_in
from shop.models import Sale
from shop.orders.refusals import full_retry_seconds, not_open, refusal
from shop.orders.requests import ASKS
from shop.orders.restoring import restore_asked
from shop.orders.status import poll_after_ms
from shop.replies import (
    ACCEPTED,
    NO_HEADERS,
    OK,
    OVERLOADED,
    REFUSED,
    REQUEST_ID,
    Head,
    Headers,
    LateAnswers,
    Reply,
    plain_problem,
    problem_answer,
    refuse,
    refuse_crowd,
    request_id_of,
)
from shop.tickets.signing import sign_tickets

log = structlog.get_logger(__name__)

# Before this much is left we refuse early comers ourselves; Redis, whose clock decides, sees only the last moment.
EARLY_SECONDS = 2.0
# To look a member of an enumeration up costs more than the comparison.
ADMITTED, ON_STANDBY = int(Code.ADMITTED), int(Code.ON_STANDBY)
# Of a named tuple and all its fields in order: without the lookups of a call it costs less than half.
new_tuple = tuple.__new__
NEVER = str(Sale.PassMode.NEVER)
NO_EMAIL_ASKED = str(Sale.EmailMode.NEVER)
STANDBY_CODES = (ON_STANDBY, Code.KNOWN_BEFORE + ord(State.STANDBY.letter))
SOLD_OUT = problem_answer(SoldOut())
LINE_FULL = LineFull()
ASK_SECONDS = Histogram("fairdrop_ask_seconds", "From a purchase to what the line said of it", bounds=ANSWER)
TERMS_CODES = (Code.TERMS_CHANGED, Code.TERMS_UNKNOWN)


def _refuse_from_memory(reply: Reply, entry: SaleEntry) -> None:
    if entry.refused_at != entry.seen_at:  # one answer for everybody between two looks at the line
        entry.refusal, entry.refused_at = _refusal_of(entry), entry.seen_at
    code, head, body = entry.refusal
    REFUSED[code] += 1
    ASKS.add(code)
    reply.send(head, body)


def _refuse(reply: Reply, error: Exception, headers: Headers = NO_HEADERS) -> None:
    """Refuse one purchase, and count it among the answers to purchases."""
    ASKS.add(error.code if isinstance(error, FairdropError) else Unavailable.code)
    refuse(reply, error, headers)


def _refuse_crowd(reply: Reply, error: FairdropError) -> None:
    ASKS.add(error.code)
    refuse_crowd(reply, error)


async def _counted(work: Coroutine[Any, Any, None]) -> None:
    """Do `work`, and count the refusal that it raises."""
    try:
        await work
    except Exception as error:
        ASKS.add(error.code if isinstance(error, FairdropError) else Unavailable.code)
        raise


def _refusal_of(entry: SaleEntry) -> tuple[str, Head, bytes]:
    """Return the code and the answer for a request that finds no room."""
    if not entry.may_come_free():
        return SoldOut.code, *SOLD_OUT
    retry = full_retry_seconds(entry.card, now=clocks.now())
    return LineFull.code, *plain_problem(LINE_FULL.code, LINE_FULL.status, LINE_FULL.detail, retry)


class Asked(NamedTuple):
    """One buyer's ask on its way through a batch."""

    reply: Reply
    entry: SaleEntry
    ask: Ask
    origin: Origin
    came_at: float  # monotonic seconds
    is_repeat: bool = False  # the database was asked for the terms already
    refusal: FairdropError | None = None  # what is wrong with its pass, e-mail or code, should it need one


class Told(NamedTuple):
    """What the admission script said of one ask, and its ticket: '' where it has no place."""

    answer: Answer
    ticket: str = ""


def with_tickets(batch: Sequence[Asked], answers: Sequence[Answer]) -> list[Told]:
    """Return the answers of one script call with the tickets of those that have a place, all by one signature."""
    placed = [
        new_tuple(Ticket, (ask.request_id, ask.buyer, ask.quantity, seq, terms_version, ordinal, code in STANDBY_CODES))
        for ask, (code, seq, _, terms_version, ordinal) in zip([each.ask for each in batch], answers, strict=True)
        if seq
    ]
    if not placed:
        return [Told(answer) for answer in answers]
    entry = batch[0].entry
    tickets = iter(sign_tickets(placed, slug=entry.card.slug, request_key=entry.request_key))
    return [new_tuple(Told, (answer, next(tickets) if answer.seq else "")) for answer in answers]


def _traced(asked: Asked, answer: Answer) -> traces.Asked:
    return traces.Asked(asked.ask.request_id, asked.came_at, admission.word_of(answer.code))


class Purchases:
    """The admission of one process: a coalescer for each sale. rates: counted each ask before it came here."""

    def __init__(self, client: AsyncClient, board: Board, late: LateAnswers, *, rates: Rates) -> None:
        self._rates = rates
        # At INFO, an ask that brought an id of its own has a line with both.
        self._is_noted = logging.getLogger(__name__).isEnabledFor(logging.INFO)
        self._client = client
        self._board = board
        self._late = late
        self._coalescers: dict[int, Coalescer[Asked, Told]] = {}
        self._looks: dict[int, Coalescer[tuple[Asked, Answer], Answer]] = {}
        self._threads = ThreadPool("tickets", threads=2, max_waiting=64)
        self._codes = ThreadPool("codes", threads=4, max_waiting=settings.GATE_MAX_WAITING)

    async def stop(self) -> None:
        """Let what was handed over be decided."""
        await asyncio.gather(*(each.finish() for each in self._coalescers.values()))
        await asyncio.gather(*(each.finish() for each in self._looks.values()))
        await asyncio.gather(*(each.finish() for each in self._coalescers.values()))  # who was asked again

    def handle(self, reply: Reply, asked: tuple[SaleEntry, Origin], headers: Headers, body: bytes) -> None:
        """Answer one POST, now or when its batch is back; an error is answered as a problem."""
        entry, origin = asked
        try:
            coalescer = self._coalescers.get(entry.card.sale_id)
            if coalescer is not None and coalescer.is_full:
                _refuse_crowd(reply, OVERLOADED)
            else:
                self._ask(reply, entry, origin, headers, body)
        except Exception as error:
            _refuse(reply, error, headers)

    def _ask(self, reply: Reply, entry: SaleEntry, origin: Origin, headers: Headers, body: bytes) -> None:
        buyer = buyer_of(headers, unsafe=True)
        check_json_content_type(headers)
        quantity, terms_version, ticket, standby, code = read_wish(body)
        key = read_idempotency_key(headers)
        card = entry.card
        if not ticket and not standby and entry.is_surely_sold_out(buyer):
            return _refuse_from_memory(reply, entry)
        name = request_id(sale_id=card.sale_id, request_key=entry.request_key, buyer=buyer, idempotency_key=key)
        sent = NOT_ASKED
        if card.pass_mode != NEVER:
            sent = passes.check(headers.get(b"fairdrop-pass", b"").decode("latin-1"), card, buyer=buyer)
        if card.email_mode != NO_EMAIL_ASKED:
            sent = emails.check(headers.get(b"fairdrop-email", b"").decode("latin-1"), card, buyer=buyer, sent=sent)
        network = origin[1]
        if card.revoked_networks and card.revokes(network, mark=mark_in(token_in(headers))):
            network = admission.REVOKED
        is_public = card.codes_required and card.is_public(clocks.now())
        if is_public:  # by our clock; the line's decides
            sent = codes.lacking(sent, card, sent.refusal or CodeRequired())
        ask = new_tuple(
            Ask, (name, buyer, quantity, terms_version, standby, network, sent.pass_id, sent.entry, sent.early)
        )
        asked = new_tuple(Asked, (reply, entry, ask, origin, time.monotonic(), False, sent.refusal))
        if self._is_noted and REQUEST_ID in headers:
            log.info("asked", action="asked", requests=[name], request_id=request_id_of(headers).decode())
        if ticket:
            return self._late.find(reply, _counted(self._restore(asked, ticket)), headers)
        if card.retired_at is not None:
            return self._late.find(reply, _counted(self._look_up(asked)), headers)
        # An opening may have been moved after somebody was let in: then the line tells them apart from who is early.
        is_early = entry.opens_in_seconds() > EARLY_SECONDS and card.operator_state != "closed"
        if is_early and not (entry.figures and entry.figures.admitted):
            raise not_open(opens_at=card.opens_at, now=clocks.now())
        if WATCH.full_servers(self._client, card.sku):
            raise MemoryFull
        if card.codes_required and not is_public and network != admission.REVOKED:
            return self._late.find(reply, _counted(self._show_code(asked, code)), headers)
        return self._coalescer(entry).submit(asked)

    async def _show_code(self, asked: Asked, code: str) -> None:
        """Send an ask on with what its code is worth. Raises GuessesLimited, Unavailable."""
        ask, card = asked.ask, asked.entry.card
        sent = await self._codes.read(
            codes.check, code, card, request_id=ask.request_id, quantity=ask.quantity, network=ask.network,
            sent=AccessCheck(ask.pass_id, asked.refusal, ask.entry, ask.early),
        )  # fmt: skip
        shown = asked._replace(ask=ask._replace(pass_id=sent.pass_id, early=sent.early), refusal=sent.refusal)
        self._coalescer(asked.entry).submit(shown)

    async def _restore(self, asked: Asked, ticket: str) -> None:
        """Answer with the place that a ticket names, as the admission script would. Raises what restore_asked does."""
        ask = asked.ask
        view, restored = await self._threads.read(
            restore_asked, ticket, request_id=ask.request_id, quantity=ask.quantity, buyer=ask.buyer
        )
        first = Code.ON_STANDBY if view.state is State.STANDBY else Code.ADMITTED
        code = first if restored else Code.KNOWN_BEFORE + ord(view.state.letter)
        answer = Answer(code, view.seq, view.position or 0, view.terms_version, view.ordinal)
        self._answer(asked, with_tickets([asked], [answer])[0])

    async def _look_up(self, asked: Asked) -> None:
        """Answer for a retired sale what admission would say of a request that it has let in before."""
        view = await self._board.past.find_asked(asked.ask.request_id, quantity=asked.ask.quantity)
        code = Code.KNOWN_BEFORE + ord(view.state.letter)
        self._answer(asked, with_tickets([asked], [Answer(code, view.seq, 0, view.terms_version, view.ordinal)])[0])

    def _deliver(self, asked: Asked, told: Told | FairdropError) -> None:
        """Pass on what the admission script said of one ask."""
        if isinstance(told, FairdropError):
            _refuse_crowd(asked.reply, told)  # it is told to the whole batch
        elif told.answer.code == ADMITTED:
            self._answer(asked, told)
        else:
            try:
                answer = told.answer
                if answer.code in TERMS_CODES and self._may_know_more(asked, answer):
                    self._look(asked.entry).submit((asked, answer))
                else:
                    self._answer(asked, told)
            except FairdropError as error:
                _refuse(asked.reply, error)

    def _may_know_more(self, asked: Asked, answer: Answer) -> bool:
        if asked.is_repeat:
            return False
        return answer.code == Code.TERMS_UNKNOWN or asked.entry.card.terms_version <= asked.ask.terms_version

    def _deliver_again(self, looked: tuple[Asked, Answer], answer: Answer | FairdropError) -> None:
        """Go on with one ask after its sale's terms were read again."""
        asked = looked[0]._replace(is_repeat=True)
        if isinstance(answer, FairdropError) or answer.code != Code.TERMS_UNKNOWN:
            return self._deliver(asked, answer if isinstance(answer, FairdropError) else Told(answer))
        try:
            self._coalescer(asked.entry).submit(asked)
        except FairdropError as error:
            _refuse(asked.reply, error)

    def _answer(self, asked: Asked, told: Told) -> None:
        (code, seq, position, _, _), ticket = told
        reply, entry, ask, origin, _, _, not_shown = asked
        is_new = code in (ADMITTED, ON_STANDBY)
        if not is_new and code <= Code.KNOWN_BEFORE:
            if code == Code.NOT_PRIMED:
                self._board.prime_soon(entry)
                raise SaleNotPrimed
            if not_shown is not None and code in NOT_SHOWN:
                raise not_shown
            raise refusal(code, entry.card, now=clocks.now()) or SaleNotPrimed
        if is_new:
            entry.note_admission()
            ASKS.counts["admitted" if code == ADMITTED else "standby"] += 1
        else:
            ASKS.counts["known"] += 1
            self._rates.give_back(origin)  # a press that is sent again is no second one
        state = "queued" if code == ADMITTED else admission.state_of(code)
        on_standby = state is State.STANDBY
        url = f"/api/v1/requests/{ask.request_id}"
        # Written by hand: every part is a number or made of URL-safe letters, and this is the hottest line of all.
        body = (
            f'{{"request_id":"{ask.request_id}","state":"{state}","position":{position or "null"},"seq":{seq},'
            f'"ticket":"{ticket}","status_url":"{url}","events_url":"{url}/events",'
            f'"poll_after_ms":{poll_after_ms(0 if on_standby else position, seq)}}}'
        )
        # Settlers and expirers name the request in their lines: so the answer's own id is found there.
        reply.send(ACCEPTED if is_new else OK, body.encode(), ask.request_id.encode())

    def _coalescer(self, entry: SaleEntry) -> Coalescer[Asked, Told]:
        sale_id = entry.card.sale_id
        coalescer = self._coalescers.get(sale_id)
        if coalescer is None:

            async def admit(batch: Sequence[Asked]) -> Sequence[Told]:
                card = batch[-1].entry.card  # a limit may have changed since
                line = SaleLine(sale_id, card.sku, card.network_limit, card.public_us)
                sent_at = time.monotonic()
                answers = await admission.admit_async(self._client, line, [each.ask for each in batch])
                told = with_tickets(batch, answers)
                traces.note_asks(map(_traced, batch, answers), sent_at=sent_at)
                ASK_SECONDS.observe_since([each.came_at for each in batch])
                return told

            coalescer = self._coalescers[sale_id] = Coalescer(
                admit, self._deliver, max_per_call=settings.GATE_BATCH, max_waiting=settings.GATE_MAX_WAITING
            )
        return coalescer

    def _look(self, entry: SaleEntry) -> Coalescer[tuple[Asked, Answer], Answer]:
        """Return what reads the terms of a sale again, once for all who were shown a version not known here."""
        sale_id = entry.card.sale_id
        if sale_id not in self._looks:

            async def look(batch: Sequence[tuple[Asked, Answer]]) -> Sequence[Answer]:
                await self._board.look_again(batch[-1][0].entry)
                return [answer for _, answer in batch]

            limit = settings.GATE_MAX_WAITING
            self._looks[sale_id] = Coalescer(look, self._deliver_again, max_per_call=limit, max_waiting=limit)
        return self._looks[sale_id]
