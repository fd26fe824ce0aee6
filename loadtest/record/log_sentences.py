"""Keeps what the independent verifier said of the public log of each sale, a sentence a line, alongside the record.
Never verifies anything: it only tells a sentence that is in order from one that is not.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

from loadtest.record.files import write_whole

LOGS_FILE = "public_logs.txt"
# A sentence that is in order begins and ends so: what stands between may be a shop's own words, and proves nothing.
CHECKED = "An independent script has checked the public log of "
# A shop that publishes no keys for logs has none.
HOLDS, NO_LOG = "every rule holds.", "has no public log."
# Of a sale that goes on nobody can say yet whether all are answered.
HOLDS_BUT = "every rule holds, but for {} (not judged)."
ENDS = re.compile(rf".*({re.escape(HOLDS)}|{re.escape(HOLDS_BUT).replace(re.escape('{}'), '[a-z_ ]+')})")


def write_sentences(folder: Path, sentences: Iterable[str]) -> None:
    """Write the file of a run whole."""
    write_whole(folder / LOGS_FILE, "".join(f"{text}\n" for text in sentences))


def read_sentences(folder: Path) -> list[str] | None:
    """Return the sentences of a run; None when it kept none."""
    path = folder / LOGS_FILE
    return path.read_text().splitlines() if path.exists() else None


def is_in_order(sentence: str) -> bool:
    """Say whether the log of this sentence holds, or there is none to hold."""
    is_checked = sentence.startswith(CHECKED) and ENDS.fullmatch(sentence) is not None
    return is_checked or sentence.partition(" ")[2] == NO_LOG
