"""Fills the numbers of a run into the sentences that say how it was measured. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from _typeshed import DataclassInstance


def filled(method: Sequence[str], lengths: DataclassInstance, **more: object) -> list[str]:
    """Return the sentences with every number of `lengths`, by its name, and of `more`."""
    numbers = {each.name: getattr(lengths, each.name) for each in fields(lengths)}
    return [line.format(**numbers | more) for line in method]
