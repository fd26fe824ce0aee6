"""Declares what an operator may say about a flood; the same words on the command line and in Locust's web page.
Never reads anything else from outside.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Mapping
from dataclasses import dataclass
from math import isfinite
from pathlib import Path
from typing import Any

from loadtest.plan.population import AUTO_MIX, BUILT_IN, MIXES, Population, who_comes
from loadtest.record.expectations import EXPECTATIONS, FULL_SET, UnknownExpectation, expectations_from
from loadtest.shop_api import ShopError

DEFAULT_BUYERS, DEFAULT_ATTEMPTS, DEFAULT_SEED = 3000, 20_000, 1
# Set by run_flood: the process with which its Locust must end.
PARENT_VARIABLE = "FAIRDROP_FLOOD_PARENT"
AUDIT_TOKEN_VARIABLE = "FAIRDROP_AUDIT_TOKEN"  # noqa: S105 - the name of a variable

FULL_WORD = "all"
HISTORY_HELP = (
    "folder for the clients' record and the verdict; in it, from this page and when it is empty in out/flood, "
    "each run has one of its own"
)
EXPECTS_HELP = f"what the run must have shown to prove anything, with commas between: {', '.join(EXPECTATIONS)}"


def declare(parser: Any) -> None:
    """Add the flood's own arguments to Locust's."""
    parser.add_argument(
        "--sales", default="", help="slugs of the sales to flood, with commas between; none: all open ones"
    )
    parser.add_argument(
        "--buyers", type=int, default=DEFAULT_BUYERS, help="how many buyers come, each with an own token"
    )
    parser.add_argument(
        "--attempts", type=int, default=DEFAULT_ATTEMPTS, help="purchase attempts of the whole run, repeats in"
    )
    parser.add_argument(
        "--audit-token",
        # No default from the environment: Locust would write it into its page, where only the field hides it.
        default="",
        is_secret=True,
        help=f"the shop's audit token, without which no run passes; empty: {AUDIT_TOKEN_VARIABLE}",
    )
    parser.add_argument("--history", default="", help=HISTORY_HELP)
    parser.add_argument("--seed", type=int, default=DEFAULT_SEED, help="the same seed is the same crowd")
    parser.add_argument("--expects", default=FULL_WORD, help=EXPECTS_HELP)
    parser.add_argument(
        "--mix", choices=[AUTO_MIX, *MIXES], default=AUTO_MIX, help="who comes; auto: shoppers, with a shape everybody"
    )
    parser.add_argument("--rate", type=float, default=0.0, help="with a shape: buyers a second; 0: as the shape wants")
    parser.add_argument(
        "--seconds", type=float, default=0.0, help="with a shape: how long buyers keep coming; 0: as the shape wants"
    )
    parser.add_argument(
        "--allow-remote",
        action="store_true",
        include_in_web_ui=False,
        help="allow a host that is not this machine",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """The flood's own arguments, checked."""

    sales: list[str]
    buyers: int
    attempts: int
    audit_token: str
    expects: frozenset[str]
    folder: Path | None  # None: one of its own for each run
    seed: int
    mix: str
    rate: float
    seconds: float
    remote: bool

    def population(
        self, sales: tuple[str, ...], *, planned: int | None = None, kinds: Mapping[str, int] | None = None
    ) -> Population:
        """Return the crowd that floods these sales.

        planned: how many buyers a shape wants, if there is one. kinds: who comes, by weight; None: as the mix says.
        """
        return Population(
            sales=sales,
            buyers=self.buyers if planned is None else planned,
            # Each shopper of a shape clicks as often as one of the standard flood.
            attempts=self.attempts if planned is None else planned * self.attempts // self.buyers,
            seed=self.seed,
            kinds=who_comes(BUILT_IN, mix=self.mix, planned=planned is not None) if kinds is None else kinds,
        )


def wanted_from(options: argparse.Namespace) -> Wanted:
    """Read Locust's parsed options (the web page sends texts); raise ShopError for a number that makes no sense."""
    try:
        buyers, attempts, seed = int(options.buyers), int(options.attempts), int(options.seed)
    except (TypeError, ValueError) as error:
        raise ShopError("buyers, attempts and seed must be whole numbers.") from error
    try:
        rate, seconds = (float(getattr(options, name) or 0) for name in ("rate", "seconds"))
    except ValueError as error:
        raise ShopError("rate and seconds must be numbers.") from error
    if not all(isfinite(number) and number >= 0 for number in (rate, seconds)):
        raise ShopError("rate and seconds must not be below zero.")
    if options.mix not in (AUTO_MIX, *MIXES):
        raise ShopError(f"There is no mix {options.mix!r}: take one of {', '.join([AUTO_MIX, *MIXES])}.")
    if buyers < 1 or attempts < buyers:
        raise ShopError("There must be at least one buyer, and at least one attempt for each.")
    return Wanted(
        sales=[slug.strip() for slug in str(options.sales or "").split(",") if slug.strip()],
        buyers=buyers,
        attempts=attempts,
        expects=_expects_from(str(options.expects or "")),
        audit_token=str(options.audit_token or os.environ.get(AUDIT_TOKEN_VARIABLE, "")),
        folder=Path(options.history) if options.history else None,
        seed=seed,
        mix=options.mix,
        rate=rate,
        seconds=seconds,
        remote=bool(options.allow_remote),
    )


def _expects_from(text: str) -> frozenset[str]:
    if text in ("", FULL_WORD):
        return FULL_SET
    try:
        return expectations_from(word.strip() for word in text.split(","))
    except UnknownExpectation as error:
        raise ShopError(str(error)) from error
