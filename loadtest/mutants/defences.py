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


def _never(_real: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *_arguments, **_known: False


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
}
