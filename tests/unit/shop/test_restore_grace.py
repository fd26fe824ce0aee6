"""After Redis was lost the line waits for those who hold a ticket: longer than any of them waits before they look.
Reads sources, the page's script among them; needs no server.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from shop.gate import subscriber
from shop.orders.status import poll_after_ms

ROOT = Path(__file__).resolve().parents[3]
FAR_BACK = 10**6  # there a pause is longest
# Where the default of FAIRDROP_RESTORE_GRACE_SECONDS is written.
DEFAULTS = {
    "shop/settings.py": r'"FAIRDROP_RESTORE_GRACE_SECONDS", default=([\d.]+)',
    "docker-compose.yml": r"\{FAIRDROP_RESTORE_GRACE_SECONDS:-([\d.]+)\}",
    ".env.example": r"#FAIRDROP_RESTORE_GRACE_SECONDS=([\d.]+)",
}


def pauses_of_page() -> list[float]:
    """Return the longest pause, in seconds, of each way in which the script of a ticket puts off its next look."""
    text = (ROOT / "shop" / "static" / "shop" / "ticket.js").read_text()
    milliseconds = {name: int(value) for name, value in re.findall(r"^const (\w+_MS) = ([\d_]+);", text, re.MULTILINE)}
    found = re.findall(r"Math\.min\((\w+), [^)]+\) \* \(([\d.]+) \+ Math\.random\(\) / (\d+)\)", text)
    pauses = [milliseconds[name] * (float(least) + 1 / int(spread)) / 1000 for name, least, spread in found]
    return [*pauses, milliseconds["QUIET_MS"] / 1000]


@pytest.mark.parametrize("path", DEFAULTS)
def test_everybody_who_holds_a_ticket_looks_again_within_the_pause(path: str) -> None:
    (grace,) = re.findall(DEFAULTS[path], (ROOT / path).read_text())
    program = max(poll_after_ms(FAR_BACK, seq) for seq in range(100)) / 1000
    stream = max(subscriber.CALMER * program, subscriber.MAX_SECONDS)
    page = pauses_of_page()
    assert len(page) == 3, "the script of a ticket pauses in other ways now"
    assert max(program, stream, *page) < float(grace)
