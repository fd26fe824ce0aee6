"""POST /api/v1/sales/<slug>/requests: turns a wish into a place in line through one coalesced script call.
Touches the database only for a ticket that is shown, never waits without a bound. Called by the gate's router.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from functools import lru_cache
from typing import NamedTuple

from django.conf import settings

from inventory import admission
from inventory.admission import Answer, Ask, Code, SaleLine
from inventory.exceptions import InvalidRequest, MemoryFull, SaleNotPrimed, SoldOut
from inventory.redis import AsyncClient
from inventory.server_memory import WATCH
from inventory.tickets import Ticket, request_id, sign_ticket
from shop.buyers import ticket_signer
from shop.gate.board import Board
from shop.gate.coalescer import Coalescer
from shop.gate.entries import SaleEntry
from shop.gate.http import (
    JSON_HEADERS,
    Headers,
    Receive,
    Send,
    buyer_of,
    check_json_content_type,
    read_body,
    read_json_object,
    send_answer,
)
from shop.gate.pace import poll_after_ms
from shop.gate.threads import ReaderThreads
from shop.refusals import not_open, refusal
from shop.requests import LONGEST_KEY, MOST_UNITS, RequestView
from shop.restoring import restore_asked

# Before this much is left we refuse early comers ourselves; Redis, whose clock decides, sees only the last moment.
EARLY_SECONDS = 2.0
MAX_VERSION = 2**53


class Wish(NamedTuple):
    """What a body asks for. terms_version: of the terms that were shown, 0 when none is named; ticket: '' for none."""

    quantity: int
    terms_version: int = 0
    ticket: str = ""


@lru_cache(maxsize=256)
def read_wish(body: bytes) -> Wish:
    """Return what `body` asks for: "quantity" from 1 to 1000, perhaps "terms_version", "ticket". Raises InvalidRequest.

    Cached: a sale's bodies are the same few bytes thousands of times over. Errors are not kept.
    """
    wish = read_json_object(body)
    unknown = sorted(wish.keys() - set(Wish._fields))
    if unknown:
        raise InvalidRequest(f"unknown field: {unknown[0][:40]!a}")
    quantity, version = wish.get("quantity"), wish.get("terms_version", 0)
    if type(quantity) is not int or not 1 <= quantity <= MOST_UNITS:
        raise InvalidRequest(f"quantity must be a whole number from 1 to {MOST_UNITS}")
    if type(version) is not int or ("terms_version" in wish and not 1 <= version < MAX_VERSION):
        raise InvalidRequest("terms_version must be one that this sale has had")
    ticket = wish.get("ticket", "")
    if not isinstance(ticket, str) or ("ticket" in wish and not ticket):
        raise InvalidRequest("ticket must be a text")
    return Wish(quantity, version, ticket)


def read_idempotency_key(headers: Headers) -> str:
    """Return the Idempotency-Key, '' when there is none. Raises InvalidRequest when it is too long or not printable."""
    raw = headers.get(b"idempotency-key")
    if raw is None:
        return ""
    text = raw.decode("latin-1")
    if not 1 <= len(text) <= LONGEST_KEY or not text.isascii() or not text.isprintable():
        raise InvalidRequest(f"Idempotency-Key must be 1 to {LONGEST_KEY} printable ASCII characters")
    return text


def asked_before(view: RequestView) -> Answer:
    """Return what admission would say of a request that it has let in before."""
    return Answer(Code.KNOWN_BEFORE + ord(view.state.letter), view.seq, 0)


class Purchases:
    """The admission door of one process: a coalescer for each sale."""

    def __init__(self, client: AsyncClient, board: Board) -> None:
        self._client = client
        self._board = board
        self._coalescers: dict[int, Coalescer[Ask, Answer]] = {}
        self._threads = ReaderThreads("tickets", threads=2, most_waiting=64)

    def close(self) -> None:
        """End the threads."""
        self._threads.close()

    async def handle(self, slug: str, headers: Headers, receive: Receive, send: Send) -> None:
        """Answer one POST. Raises every FairdropError the contract lists for it."""
        entry = await self._board.find(slug)
        buyer = buyer_of(headers, unsafe=True)
        check_json_content_type(headers)
        body = await read_body(receive, headers)
        wish = read_wish(body)
        key = read_idempotency_key(headers)
        card = entry.card
        name = request_id(sale_id=card.sale_id, request_key=entry.request_key, buyer=buyer, idempotency_key=key)
        ask = Ask(name, buyer, wish.quantity, wish.terms_version)
        if wish.ticket:
            return await self._answer(entry, ask, await self._restore(ask, wish.ticket), send)
        if entry.is_surely_sold_out(buyer):
            raise SoldOut
        if entry.opens_in_seconds() > EARLY_SECONDS:
            raise not_open(opens_at=card.opens_at, now=datetime.now(UTC))
        if card.retired_at is not None:
            answer = asked_before(await self._board.past.find_asked(name, quantity=wish.quantity))
            return await self._answer(entry, ask, answer, send)
        if WATCH.full_servers(self._client, card.sku):
            raise MemoryFull
        answer = await self._coalescer(entry).submit(ask)
        if answer.code == Code.TERMS_UNKNOWN:
            await self._board.look_again(entry)
            answer = await self._coalescer(entry).submit(ask)
        elif answer.code == Code.TERMS_CHANGED and entry.card.terms_version <= wish.terms_version:
            await self._board.look_again(entry)
        return await self._answer(entry, ask, answer, send)

    async def _restore(self, ask: Ask, ticket: str) -> Answer:
        """Return the place that a ticket names, as the admission script would. Raises what restore_asked does."""
        view, restored = await self._threads.read(
            restore_asked, ticket, request_id=ask.request_id, quantity=ask.quantity, buyer=ask.buyer
        )
        code = Code.ADMITTED if restored else Code.KNOWN_BEFORE + ord(view.state.letter)
        return Answer(code, view.seq, view.position or 0, view.terms_version, view.ordinal)

    async def _answer(self, entry: SaleEntry, ask: Ask, answer: Answer, send: Send) -> None:
        code, seq, position, terms_version, ordinal = answer
        if code != Code.ADMITTED and code <= Code.KNOWN_BEFORE:
            if code == Code.NOT_PRIMED:
                self._board.prime_soon(entry)
                raise SaleNotPrimed
            raise refusal(code, entry.card, now=datetime.now(UTC)) or SaleNotPrimed
        if code == Code.ADMITTED:
            entry.note_admission()
        state = admission.state_of(code)
        place = Ticket(ask.request_id, ask.buyer, ask.quantity, seq, terms_version, ordinal)
        ticket = sign_ticket(ticket_signer(), place)
        url = f"/api/v1/requests/{ask.request_id}"
        # Written by hand: every part is a number or made of URL-safe letters, and this is the hottest line of all.
        body = (
            f'{{"request_id":"{ask.request_id}","state":"{state}","position":{position or "null"},"seq":{seq},'
            f'"ticket":"{ticket}","status_url":"{url}","events_url":"{url}/events",'
            f'"poll_after_ms":{poll_after_ms(position, seq)}}}'
        )
        await send_answer(send, 202 if code == Code.ADMITTED else 200, JSON_HEADERS, body.encode())

    def _coalescer(self, entry: SaleEntry) -> Coalescer[Ask, Answer]:
        sale_id = entry.card.sale_id
        coalescer = self._coalescers.get(sale_id)
        if coalescer is None:
            line = SaleLine(sale_id, entry.card.sku)

            async def admit(asks: Sequence[Ask]) -> Sequence[Answer]:
                return await admission.admit_async(self._client, line, asks)

            coalescer = self._coalescers[sale_id] = Coalescer(
                admit, most_per_call=settings.GATE_BATCH, most_waiting=settings.GATE_MAX_WAITING
            )
        return coalescer
