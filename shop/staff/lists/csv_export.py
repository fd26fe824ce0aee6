"""Writes CSV for spreadsheets, some rows at a time, with every cell that would be a formula as text.
Never holds more of a table than one part.
"""

from __future__ import annotations

import csv
import io
import re
from codecs import BOM_UTF8
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice

from django.http import StreamingHttpResponse
from django.utils import timezone
from django.utils.translation import gettext

# What a spreadsheet takes for a formula, also after spaces, newlines and signs that nobody sees; and what it cuts off.
FORMULA = re.compile(r"[\s\x00-\x20\u200b-\u200f\ufeff]*[=+\-@＝＋－＠]|[\t\r\n]")
ROWS_A_PART = 1_000
CONTENT_TYPE = "text/csv; charset=utf-8"


def csv_parts(columns: Sequence[str], rows: Iterable[Iterable[object]]) -> Iterator[bytes]:
    """Yield the table as bytes: its head, then ROWS_A_PART rows at a time. None is an empty cell."""
    head = _written([columns])
    yield head if head.isascii() else BOM_UTF8 + head  # without it Excel reads other letters wrongly
    left = iter(rows)
    while part := list(islice(left, ROWS_A_PART)):
        yield _written(map(_harmless, row) for row in part)


def streamed_csv(name: str, columns: Sequence[str], rows: Iterable[Iterable[object]]) -> StreamingHttpResponse:
    """Return the table as a download that is called `name` and the moment, in UTC. Its head is for the reader."""
    head = [gettext(column) for column in columns]  # now: what is streamed later is in nobody's language
    answer = StreamingHttpResponse(csv_parts(head, rows), content_type=CONTENT_TYPE)
    answer["Content-Disposition"] = disposition(name)
    return answer


def disposition(name: str) -> str:
    """Return the header that makes an answer a download."""
    return f'attachment; filename="{name}-{timezone.now():%Y%m%dT%H%M%SZ}.csv"'


def _written(rows: Iterable[Iterable[object]]) -> bytes:
    text = io.StringIO(newline="")
    csv.writer(text).writerows(rows)
    return text.getvalue().encode()


def _harmless(value: object) -> object:
    """Return a cell that a spreadsheet reads as text: names of machines and slugs are typed by people."""
    # No formula begins with a letter or a digit, as nearly every cell does; that is quick to see.
    if not isinstance(value, str) or value[:1].isalnum() or not FORMULA.match(value):
        return value
    return f"'{value}"
