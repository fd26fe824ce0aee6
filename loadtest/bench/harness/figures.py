"""One measured figure with the floor it must reach or the ceiling it must keep, and the aim. Pure. Never measures."""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Figure:
    """at_least, at_most: the bounds by which a run can fail; without one it is only printed. unit: '' for a ratio.

    limit: what the parts below could do at most, in the same unit, measured in the same run.
    """

    name: str
    value: float
    unit: str = ""
    at_least: float | None = None
    at_most: float | None = None
    aim: float | None = None
    limit: float | None = None

    @property
    def of_limit(self) -> float | None:
        """Return the figure as a ratio to its limit, None without one."""
        return None if self.limit is None else ratio(self.value, self.limit)

    @property
    def ok(self) -> bool:
        """Say whether the figure keeps its bound; one that is not a number never does."""
        if math.isnan(self.value):
            return False
        return (self.at_least is None or self.value >= self.at_least) and (
            self.at_most is None or self.value <= self.at_most
        )

    @property
    def is_bound(self) -> bool:
        """Say whether the run can fail by this figure."""
        return self.at_least is not None or self.at_most is not None

    @property
    def mark(self) -> str:
        """Return ✓, ✗, or nothing for a figure without a bound."""
        if not self.is_bound:
            return ""
        return "✓" if self.ok else "✗"

    @property
    def bound(self) -> str:
        """Return the bound as text."""
        if self.at_least is not None:
            return f"≥ {number(self.at_least)}"
        return f"≤ {number(self.at_most)}" if self.at_most is not None else ""


def number(value: float) -> str:
    """Return `value` with two digits behind the point when it is small, with none when it is large."""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:,.2f}"


def ratio(above: float, below: float) -> float:
    """Return above ÷ below; not a number when there is nothing to divide by."""
    return above / below if below else float("nan")
