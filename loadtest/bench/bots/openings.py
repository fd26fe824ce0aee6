"""Which robber comes to a sale with which defences: none, each alone that the robber meets, and all.
Says nothing of what comes of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from loadtest.bench.bots.crowd import (
    GUESSING,
    HOLDING,
    MANY_NETWORKS,
    NOBODY,
    ONE_ADDRESS,
    ONE_NETWORK,
    SOLVER,
    SOLVER_ON_TWO,
)
from loadtest.bench.harness.fixtures import NO_LIMIT
from loadtest.bench.harness.servers import NO_RATES

PASS: dict[str, Any] = {"pass_mode": "always"}
CODE: dict[str, Any] = {"codes_required": True}
EMAIL: dict[str, Any] = {"email_mode": "once"}


@dataclass(frozen=True, kw_only=True)
class Defence:
    """environment: of the web process; terms: columns of the sale. Without any it is the shop with its defaults."""

    name: str
    environment: Mapping[str, str] = field(default_factory=dict)
    terms: Mapping[str, Any] = field(default_factory=dict)

    @property
    def asks_for_passes(self) -> bool:
        """Say whether each request needs a pass."""
        return "pass_mode" in self.terms

    @property
    def asks_for_codes(self) -> bool:
        """Say whether each request needs an access code."""
        return "codes_required" in self.terms


NONE = Defence(name="none", environment=NO_RATES, terms=NO_LIMIT)
RATES = Defence(name="calls by address", terms=NO_LIMIT)
NETWORKS = Defence(name="units by network", environment=NO_RATES)
PASSES = Defence(name="passes", environment=NO_RATES, terms=NO_LIMIT | PASS)
CODES = Defence(name="access codes", environment=NO_RATES, terms=NO_LIMIT | CODE)
DEFAULTS = Defence(name="the defaults")
DEFAULTS_AND_PASSES = Defence(name="the defaults, passes", terms=PASS)
ALL = Defence(name="all", terms=PASS | CODE)

# Robber → defences. The first row is nobody's, and what people wait there is what every other wait is compared with.
OPENINGS = {
    NOBODY: (NONE, DEFAULTS, PASSES, CODES, ALL),
    ONE_ADDRESS: (NONE, RATES, NETWORKS, PASSES, CODES, DEFAULTS, ALL),
    ONE_NETWORK: (NONE, RATES, NETWORKS, PASSES, CODES, DEFAULTS, ALL),
    MANY_NETWORKS: (NONE, RATES, NETWORKS, PASSES, CODES, DEFAULTS, ALL),
    HOLDING: (NONE, RATES, NETWORKS, DEFAULTS, ALL),
    SOLVER: (NONE, PASSES, DEFAULTS_AND_PASSES, ALL),
    SOLVER_ON_TWO: (PASSES, DEFAULTS_AND_PASSES, ALL),
    GUESSING: (NONE, CODES, ALL),
}
