"""The defences against robbers that a mutant switches off, one at a time, to see that the bot lab sees it.
Each stands in a web process or in the script that it runs; none has a layer in the tables.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from loadtest.mutants.layers import Function, Script, Text


@dataclass(frozen=True, kw_only=True)
class DoorGuard:
    """promise: what it keeps true. process: its layers in a web process."""

    promise: str
    process: tuple[Text | Script | Function, ...]


def _without_limit(real: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *_rate, **known: real(0, 0, **known)


def _nothing(_real: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *_arguments, **_known: None


def _never(_real: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *_arguments, **_known: False


def _unasked(*, says: str, shown: str) -> Script:
    """Return the layer that asks for what `shown` stands for when it is missing."""
    part = "if not code and pass ~= '' then"
    return Script(says=says, script="admit", part=part, other=part.replace("then", f"and pass ~= '{shown}' then"))


DEFENCES = {
    "address_bucket": DoorGuard(
        promise="one address asks only so often",
        process=(
            Function(
                says="the buckets of each address and network",
                module="shop.gate.router",
                name="Rates",
                made=_without_limit,
            ),
        ),
    ),
    "network_units": DoorGuard(
        promise="one network is let in for so many units",
        process=(
            Script(
                says="the limit of a network at admission",
                script="admit",
                part="if of_network > network_limit then code = 14 end",
            ),
        ),
    ),
    "token_end": DoorGuard(
        promise="an old token is none",
        process=(Function(says="the end of a token", module="shop.buyers", name="has_ended", made=_never),),
    ),
    "revocation": DoorGuard(
        promise="nobody is let in from a network that staff revoked, nor with a token that was given there",
        process=(
            Script(
                says="the refusal of a revoked network at admission",
                script="admit",
                part="if networks[i] == '!' then code = 18",
                other="if false then code = 18",
            ),
        ),
    ),
    "holds": DoorGuard(
        promise="a buyer gives back only so often",
        process=(
            Script(
                says="the limit of requests that ended unsold at admission",
                script="admit",
                part="elseif tonumber(ended[i] or '0') >= tonumber(ARGV[4]) then code = 11",
                other="elseif false then code = 11",
            ),
        ),
    ),
    "passes": DoorGuard(
        promise="nobody is let in without a pass where one is asked for",
        process=(_unasked(says="the pass at admission", shown="-"),),
    ),
    "codes": DoorGuard(
        promise="nobody is let in without an access code where one is asked for",
        process=(_unasked(says="the access code at admission", shown="!"),),
    ),
    "emails": DoorGuard(
        promise="nobody is let in without a verified e-mail where one is asked for",
        process=(_unasked(says="the verified e-mail at admission", shown="@"),),
    ),
    "entries": DoorGuard(
        promise="one e-mail address lets in one request where the sale says so",
        process=(
            Script(
                says="the entry of an e-mail address at admission",
                script="admit",
                part="if let_in and let_in ~= id then code = 20 end",
            ),
        ),
    ),
    "guesses": DoorGuard(
        promise="of one network only so many made-up codes are looked up",
        process=(
            Function(says="the count of wrong codes", module="shop.access.codes", name="count_up", made=_nothing),
        ),
    ),
}
