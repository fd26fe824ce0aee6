"""Names what an audit says of one invariant. Pure."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Finding:
    """The state of one invariant: id as in ARCHITECTURE.md (I1…), detail says what was seen."""

    id: str
    name: str
    ok: bool
    detail: str

    @property
    def place(self) -> tuple[int, str]:
        """Where it stands in a report: I2 before I2b before I10."""
        digits = "".join(letter for letter in self.id if letter.isdigit())
        return int(digits), self.id
