"""What a reader sees or hears of a page, and what of it is English. Reads text only, starts nothing."""

from __future__ import annotations

import re
from collections.abc import Collection
from html.parser import HTMLParser

# Attributes that are shown, spoken, or that a script puts on the page.
READ_ATTRIBUTES = {"alt", "title", "aria-label", "placeholder", "label"}
SCRIPT_WORDS = re.compile(r"data-(live|rests|retrying|signed-out|away|chart|names|too-large|failed|filter-title)")
PRESSED = {"submit", "button", "reset"}
SILENT = {"script", "style", "template", "code"}
# In every language: names of products, formats, units, processes and of what is typed just so.
NAMES = {
    "Fairdrop", "English", "Redis", "PostgreSQL", "Stripe", "SKU", "CSV", "UTC", "UTF", "ID", "ISO", "EUR", "IP",
    "IPv", "JPEG", "PNG", "WebP", "SVG", "MB", "QR", "settler", "expirer", "reconciler", "mailer", "notary", "payments",
    "p50", "p99", "ms", "IPv4", "IPv6", "LDAP", "Control", "Mac", "Command", "sandbox",
    "Search", "True", "False",  # of Django's pictures: look.js puts words of the page in their place
}  # fmt: skip
# Examples, the sign of the yen, numbers of orders and invariants, moments, addresses of machines and mails, keys,
# blanks for a script, and rows that Django names by itself; rights on tables of the benchmarks, which other tests may
# have made.
EXAMPLES = re.compile(
    r"shop/products/lantern\.svg|static/|JP¥|/sales/tea-set/|tea-set(-2)?|FD-\d+-\d|\bI\d+b?\b|\d{4}-\d\d-\d\dT[\d:.+]+"
    r"|\b[0-9a-f]{32}\b|[\w.+-]+@[\w.-]+|\{\w+\}|\b[\w.-]+:\d+\b|(Group|User)_\w+ object|\brival\w*(?: unit)?"
)
TOKEN = re.compile(r"[\w@.:-]+", re.ASCII)
WORD = re.compile(r"[A-Za-z][A-Za-z0-9]+")


class Read(HTMLParser):
    """Collects the texts of a page, each as it stands in its element or attribute."""

    def __init__(self) -> None:
        super().__init__()
        self.texts: list[str] = []
        self._silent = 0

    def handle_data(self, data: str) -> None:
        if not self._silent and data.strip():
            self.texts.append(" ".join(data.split()))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._silent += tag in SILENT
        shown = dict(attrs)
        names = {name for name in shown if name in READ_ATTRIBUTES or SCRIPT_WORDS.fullmatch(name)}
        names |= {"value"} if tag == "input" and shown.get("type") in PRESSED else set()
        self.texts += [text for name in sorted(names) if (text := shown[name])]

    def handle_endtag(self, tag: str) -> None:
        self._silent -= tag in SILENT


def texts_of(page: str) -> list[str]:
    """Return every text of an HTML page that somebody reads or hears."""
    reader = Read()
    reader.feed(page)
    return reader.texts


def english_in(page: str, *, data: Collection[str] = (), parts: Collection[str] = ()) -> list[str]:
    """Return the texts of a page in which an English word is left.

    data: texts that are rows of the database, and may be all of a text; parts: those that may stand inside one.
    """
    found = [text for text in texts_of(page) if not _is_data(text, data)]
    # The parts first: a row of another test may be called as one of their words is.
    rest = {text: _without(text, parts) for text in found}
    return [text for text in found if _has_english(TOKEN.sub(lambda it: "" if it[0] in data else it[0], rest[text]))]


def _is_data(text: str, data: Collection[str]) -> bool:
    cut = text.removesuffix("…").removesuffix("...")
    return text in data or (cut != text and any(each.startswith(cut) for each in data))


def _without(text: str, parts: Collection[str]) -> str:
    for part in sorted(parts, key=len, reverse=True):
        text = text.replace(part, "")
    return text


def _has_english(text: str) -> bool:
    return any(word not in NAMES for word in WORD.findall(EXAMPLES.sub("", text)))
