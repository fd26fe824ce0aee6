"""Fills the numbers of a run into the sentences that say how it was measured. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from _typeshed import DataclassInstance


def filled(method: Sequence[str], plan: DataclassInstance, **more: object) -> list[str]:
    """Return the sentences with every number of `plan`, by its name, and of `more`."""
    numbers = {each.name: getattr(plan, each.name) for each in fields(plan)}
    return [line.format(**numbers | more) for line in method]
