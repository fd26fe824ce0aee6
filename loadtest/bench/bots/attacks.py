"""One attack for each defence: played against a web process, it says how many presses were let in.
With the defence few are; without it, as its mutant, all. Never lets anybody pay.
"""

from __future__ import annotations

import http.client
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from django.conf import settings

from loadtest.bench.bots.crowd import CODE, EMAIL, PASS, ROBBER_ADDRESS
from loadtest.bench.harness.fixtures import NO_LIMIT
from loadtest.bench.harness.servers import kept_connection, post_json
from loadtest.bench.load.loop import LoadFailed
from loadtest.bench.load.payloads import address
from shop.access.codes import MAX_GUESSES
from shop.access.emails import make_proof
from shop.buyers import issue_buyer, today, token_signer, verify_token
from shop.client_address import network_mark, network_of
from shop.sales.catalogue import find_sale

PRESSES = 80
# What the web processes get: an address may press so often at once, a network four times as often; none comes back.
AT_ONCE = 20
ENVIRONMENT = {"FAIRDROP_RATE_OF_ASKS": f"{AT_ONCE}:0.001", "FAIRDROP_TRUSTED_PROXIES": "127.0.0.0/8"}
NETWORK_LIMIT = 6
ROBBER_NETWORK = network_of(ROBBER_ADDRESS)
LIMITED, REVOKED = {"per_network_limit": NETWORK_LIMIT}, {"revoked_networks": network_mark(ROBBER_NETWORK)}
ADMITTED, NOT_SHOWN, OK = 202, 403, 200
# Of the right form, and of no sale.
MADE_UP_CODE = "0000-0000-0000"
MAILBOX = "robber@example.com"


@dataclass(frozen=True, kw_only=True)
class Attack:
    """name: of the defence, as its mutant's. presses: a (token, address) for each.

    limit: how many of them the defence may let in. terms: columns of the sale, without a limit by network by default.
    code: which each press shows. mailbox: each press proves that
    its buyer reads this one. releases: each place is given back before the next press. counted: the answer that counts
    as let in; 403 is that to a code that was looked up.
    """

    name: str
    presses: Callable[[], list[tuple[str, str]]]
    limit: int
    terms: dict[str, Any] = field(default_factory=dict)
    code: str = ""
    mailbox: str = ""
    releases: bool = False
    counted: int = ADMITTED

    @property
    def columns(self) -> dict[str, Any]:
        """Return the columns of a sale that is attacked."""
        return NO_LIMIT | self.terms


@dataclass(frozen=True, kw_only=True)
class PlayedAttack:
    """How many presses of one attack were let in: the limit, with the defence, without it; presses: there were."""

    name: str
    presses: int
    limit: int
    defended: int
    undefended: int

    @property
    def is_seen(self) -> bool:
        """Say whether the defence held, and its mutant let every press in."""
        return self.defended <= self.limit < self.undefended == self.presses


def mutant_of(name: str) -> dict[str, str]:
    """Return what a web process gets besides, to run without the defence `name`."""
    return {"DJANGO_SETTINGS_MODULE": "loadtest.mutants.settings", "FAIRDROP_ENV": "test", "FAIRDROP_MUTANT": name}


def play(attack: Attack, *, port: int, slug: str) -> int:
    """Press as the attack does, one press after the other; return how many were let in."""
    let_in, card = 0, find_sale(slug)
    with kept_connection(port) as connection:
        for number, (token, origin) in enumerate(attack.presses()):
            headers = {"Authorization": f"Bearer {token}", "X-Forwarded-For": origin, "Idempotency-Key": str(number)}
            if attack.mailbox:
                headers["Fairdrop-Email"] = make_proof(attack.mailbox, card, buyer=verify_token(token)).text
            body = {"quantity": 1} | ({"code": attack.code} if attack.code else {})
            status, told = post_json(connection, f"/api/v1/sales/{slug}/requests", headers=headers, body=body)
            let_in += status == attack.counted
            if attack.releases and status == ADMITTED:
                give_back(connection, told["request_id"], headers=headers)
    return let_in


def give_back(connection: http.client.HTTPConnection, name: str, *, headers: Mapping[str, str]) -> None:
    """Cancel a request. Raises LoadFailed unless that is answered 200."""
    status, told = post_json(connection, f"/api/v1/requests/{name}/cancel", headers=headers, body={})
    if status != OK:
        raise LoadFailed(f"a place was not given back: {status} {told}")


def old_token() -> str:
    """Return a token that ended a day ago."""
    text = f"{issue_buyer()[0]}.{today() - settings.BUYER_DAYS - 1}"
    return f"{text}.{token_signer().sign(text)}"


def _of_one_address() -> list[tuple[str, str]]:
    return [(issue_buyer()[1], ROBBER_ADDRESS) for _ in range(PRESSES)]


def _of_one_network() -> list[tuple[str, str]]:
    return [(issue_buyer()[1], f"{ROBBER_NETWORK}.{number + 1}") for number in range(PRESSES)]


def _of_many_networks() -> list[tuple[str, str]]:
    return [(issue_buyer()[1], address(number)) for number in range(PRESSES)]


def _of_one_buyer() -> list[tuple[str, str]]:
    token = issue_buyer()[1]
    return [(token, address(number)) for number in range(PRESSES)]


def _with_old_tokens() -> list[tuple[str, str]]:
    return [(old_token(), address(number)) for number in range(PRESSES)]


def _with_tokens_of_a_revoked_network() -> list[tuple[str, str]]:
    """Half of them come from elsewhere, with tokens that were given there."""
    elsewhere = [(issue_buyer(ROBBER_NETWORK)[1], address(number)) for number in range(PRESSES // 2)]
    return [*_of_one_network()[: PRESSES // 2], *elsewhere]


ATTACKS = (
    Attack(name="address_bucket", presses=_of_one_address, limit=AT_ONCE),
    Attack(name="network_units", presses=_of_one_network, limit=NETWORK_LIMIT, terms=LIMITED),
    Attack(name="token_end", presses=_with_old_tokens, limit=0),
    Attack(name="revocation", presses=_with_tokens_of_a_revoked_network, limit=0, terms=REVOKED),
    Attack(name="holds", presses=_of_one_buyer, limit=settings.MAX_ENDED_REQUESTS, releases=True),
    Attack(name="passes", presses=_of_many_networks, limit=0, terms=PASS),
    Attack(name="codes", presses=_of_many_networks, limit=0, terms=CODE, code=MADE_UP_CODE),
    Attack(name="emails", presses=_of_many_networks, limit=0, terms=EMAIL),
    Attack(name="entries", presses=_of_many_networks, limit=1, terms=EMAIL, mailbox=MAILBOX),
    Attack(
        name="guesses", presses=_of_one_network, limit=MAX_GUESSES, terms=CODE, code=MADE_UP_CODE, counted=NOT_SHOWN
    ),
)
