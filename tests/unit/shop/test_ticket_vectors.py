"""Tickets are written and read as docs/checkable-line.md says: by the shop, by the verifier, and by its vectors.
Needs no server.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from hashlib import sha256
from typing import Any

import pytest
from django.test.utils import override_settings
from hypothesis import given, settings
from hypothesis import strategies as st

from inventory.exceptions import InvalidRequest
from inventory.records import Ticket, read_ticket, request_id
from loadtest.verify.signed_log import KEY as OTHER_SHOP
from loadtest.verify.signed_log import tickets_of
from loadtest.verify.verify_sale import Verifier
from shop.buyers import ticket_signer
from shop.tickets.keys import decode, encode
from shop.tickets.reading import is_signed, read_signed, root_of
from shop.tickets.signing import holder_of, paths_of, sign_tickets
from tests.rules.sources import ROOT

VECTORS: dict[str, Any] = json.loads((ROOT / "docs" / "checkable-line.json").read_text())
TICKETS, KEY, SLUG = VECTORS["tickets"], VECTORS["key"], VECTORS["tickets"]["sale"]
REQUEST_KEY = VECTORS["holder"]["request_key"].encode()
BEGAN = "2026-11-01T00:00:00Z"
WITH_KEY = override_settings(SALE_LOG=True, LOG_KEYS=[f"{BEGAN}={KEY['seed']}"])
ALL = [ticket for batch in TICKETS["batches"] for ticket in batch["tickets"]]


def places_of(batch: dict[str, Any]) -> list[Ticket]:
    """Return the places of a batch with their buyers, who are known by their holders."""
    buyers = {holder_of(REQUEST_KEY, buyer): buyer for buyer in TICKETS["buyers"]}
    said = map(json.loads, batch["payloads"])
    return [
        Ticket(each["request"], buyers[each["holder"]], each["quantity"], each["seq"], each["terms"], each["ordinal"])
        for each in said
    ]


def faults_of(ticket: str) -> list[str]:
    """Return what a verifier finds that was shown a ticket, and then read the log of the document."""

    def get(path: str) -> bytes:
        if path.endswith("/fairdrop-keys"):
            return json.dumps([KEY]).encode()
        if path.endswith("/checkpoint"):
            return str(VECTORS["log"]["checkpoint"]).encode()
        leaves = [leaf.encode() for leaf in VECTORS["log"]["leaves"]]
        return b"".join(len(leaf).to_bytes(2, "big") + leaf for leaf in leaves)

    verifier = Verifier(get, SLUG)
    verifier.read_keys()
    verifier.show(ticket)
    verifier.round()
    verifier.replay.finish(verifier.replay.at + 3600 * 1_000_000)
    assert set(verifier.replay.faults) <= {"ticket"}
    return verifier.replay.faults.get("ticket", [])


@WITH_KEY
@pytest.mark.parametrize("batch", TICKETS["batches"], ids=lambda batch: f"{batch['size']} places")
def test_the_shop_writes_the_tickets_of_the_document(batch: dict[str, Any]) -> None:
    places = places_of(batch)
    for each in places:
        name = request_id(sale_id=1, request_key=REQUEST_KEY, buyer=each.buyer, idempotency_key="")
        assert name == each.request_id
    assert sign_tickets(places, slug=SLUG, request_key=REQUEST_KEY) == batch["tickets"]
    root, _ = paths_of([sha256(b"\0" + payload.encode()).digest() for payload in batch["payloads"]])
    assert root.hex() == batch["root"]


@WITH_KEY
def test_the_shop_reads_them_and_so_does_the_verifier() -> None:
    for batch in TICKETS["batches"]:
        for place, ticket in zip(places_of(batch), batch["tickets"], strict=True):
            found = read_signed(ticket)
            assert (found.place, found.sale) == (place._replace(buyer=""), SLUG)
            assert found.holder == holder_of(REQUEST_KEY, place.buyer)
            assert faults_of(ticket) == []
    assert read_signed(TICKETS["standby"]["ticket"]).place.on_standby == 1
    assert faults_of(TICKETS["standby"]["ticket"]) == []


@WITH_KEY
@pytest.mark.parametrize("refused", TICKETS["refused"], ids=lambda each: each["why"])
def test_what_was_cut_or_altered_or_signed_by_another_key_is_refused(refused: dict[str, str]) -> None:
    with pytest.raises(InvalidRequest):
        read_signed(refused["ticket"])
    assert len(faults_of(refused["ticket"])) == 1


@WITH_KEY
def test_a_ticket_of_another_sale_is_named_by_the_verifier() -> None:
    assert read_signed(TICKETS["of_another_sale"]).sale == "teapot-drop"
    assert "of the sale teapot-drop" in faults_of(TICKETS["of_another_sale"])[0]


@WITH_KEY
@settings(max_examples=300, deadline=None)
@given(number=st.integers(0, len(ALL) - 1), at=st.integers(0, 2000), letter=st.sampled_from("AZaz09-_.=+/ é\n"))
def test_no_letter_can_be_changed(number: int, at: int, letter: str) -> None:
    text = ALL[number]
    at %= len(text)
    changed = text[:at] + letter + text[at + 1 :]
    if changed != text:
        of_before: Callable[[str], object] = partial(read_ticket, ticket_signer())
        read = read_signed if is_signed(changed) else of_before
        with pytest.raises(InvalidRequest):
            read(changed)


@WITH_KEY
@pytest.mark.parametrize("size", [*range(1, 20), 511, 512, 513, 1000])
def test_each_path_leads_to_the_root_that_a_stranger_finds(size: int) -> None:
    leaves = [b"%d" % number for number in range(size)]
    root, paths = paths_of([sha256(b"\0" + leaf).digest() for leaf in leaves])
    for index in {0, 1, size // 2, size - 2, size - 1} & set(range(size)):
        path = [decode(each) for each in json.loads(b"[" + paths[index] + b"]")]
        assert root_of(leaves[index], index=index, size=size, path=path) == root
        if path:  # the control
            assert root_of(leaves[index], index=index, size=size, path=[root, *path[1:]]) != root


def test_a_key_that_signs_no_more_still_proves_its_tickets() -> None:
    place = places_of(TICKETS["batches"][0])
    new = encode(sha256(b"new").digest())
    with override_settings(SALE_LOG=True, LOG_KEYS=[f"2026-12-01T00:00:00Z={new}", f"{BEGAN}=pub:{KEY['public']}"]):
        assert read_signed(ALL[0]).place.ordinal == place[0].ordinal
        (by_new,) = sign_tickets(place, slug=SLUG, request_key=REQUEST_KEY)
        assert by_new != ALL[0]
        assert read_signed(by_new).place == read_signed(ALL[0]).place
    with WITH_KEY, pytest.raises(InvalidRequest, match="a key that this shop does not have"):
        read_signed(by_new)


@pytest.mark.parametrize("off", [{"SALE_LOG": False}, {"LOG_KEYS": []}, {"LOG_KEYS": [f"{BEGAN}=pub:{KEY['public']}"]}])
def test_without_a_key_tickets_are_as_before(off: dict[str, Any]) -> None:
    places = places_of(TICKETS["batches"][2])
    with override_settings(**{"SALE_LOG": True, "LOG_KEYS": [f"{BEGAN}={KEY['seed']}"]} | off):
        tickets = sign_tickets(places, slug=SLUG, request_key=REQUEST_KEY)
        assert [read_ticket(ticket_signer(), ticket) for ticket in tickets] == places
        assert not any(map(is_signed, tickets))


@WITH_KEY
def test_a_ticket_of_another_shop_is_refused() -> None:
    leaf = json.loads(VECTORS["log"]["leaves"][1])
    (ticket,) = tickets_of([leaf], sale=SLUG, key=OTHER_SHOP)
    with pytest.raises(InvalidRequest):
        read_signed(ticket)
    assert "no key of the shop" in faults_of(ticket)[0]
