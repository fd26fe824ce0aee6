"""Writes a family of samples as Prometheus reads it. Plain text, and no object for each sample as the library has them:
a thousand live sales have seven thousand, and each scrape takes its time from the process's own work.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

# What would end the value of a label too early.
_ESCAPES = str.maketrans({"\\": r"\\", "\n": r"\n", '"': r"\""})


def family(
    name: str, about: str, *, samples: Iterable[tuple[str, float]], kind: Literal["gauge", "counter"] = "gauge"
) -> str:
    """Return a family of counts or of values. samples: labels, as labels() returns them or '' for none, and value."""
    return head(name, about, kind=kind) + "".join([f"{name}{which} {value}\n" for which, value in samples])


def head(name: str, about: str, *, kind: str) -> str:
    """Return the lines that a family begins with. about: what it counts, in a line."""
    return f"# HELP {name} {about}\n# TYPE {name} {kind}\n"


def labels(**values: str) -> str:
    """Return labels as they stand in a sample, in the order of their names; '' for none."""
    pairs = [f'{name}="{value.translate(_ESCAPES)}"' for name, value in sorted(values.items())]
    return f"{{{','.join(pairs)}}}" if pairs else ""
