"""The looks at the shop during a flood: they are written down, a failed one is a gap, and no figure is made up."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from loadtest.record.sampling import AUDIT_EVERY_SECONDS, REST_AFTER_AUDIT, Sampler, live_rows
from loadtest.shop_api import ShopApi, ShopError

FIGURES = {"available": 5, "held": 0, "sold": 5, "queued": 1}
LISTED = [{"slug": "a", "title": "A thing", **FIGURES}]


class Shop(ShopApi):
    """A shop whose answers a test sets; None: it does not answer."""

    def __init__(self) -> None:
        super().__init__("http://127.0.0.1:1")
        self.listed: list[dict[str, Any]] | None = LISTED
        self.audited: dict[str, Any] | None = {"ok": True, "invariants": [], "counts": {"total": 10, "decided": 4}}

    def sales(self) -> list[dict[str, Any]]:
        return _or_no_answer(self.listed)

    def audit(self, slug: str) -> dict[str, Any]:
        return _or_no_answer(self.audited)


def _or_no_answer(answer: Any) -> Any:
    if answer is None:
        raise ShopError("No shop answers.")
    return answer


def sampler_of(shop: Shop, folder: Path, *, total: int | None = 10) -> Sampler:
    return Sampler(shop, sales={"a": {"sku": "thing", "total": total}}, folder=folder)


def lines_of(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "samples.jsonl").read_text().splitlines()]


def test_every_look_is_written_down_with_its_time(tmp_path: Path) -> None:
    sampler = sampler_of(Shop(), tmp_path)
    sampler.look_at_figures()
    sampler.look_at_audit("a")
    head, figures, audit = lines_of(tmp_path)
    assert head["wall_minus_monotonic_ns"] > 0
    assert figures["figures"] == {"a": FIGURES}
    assert audit["audit"]["counts"] == {"total": 10, "decided": 4}
    assert 0 < figures["at_ns"] < audit["at_ns"]


def test_a_look_that_fails_is_a_gap_and_the_next_one_counts_again(tmp_path: Path) -> None:
    shop = Shop()
    sampler = sampler_of(shop, tmp_path)
    sampler.look_at_figures()
    shop.listed = None
    sampler.look_at_figures()
    shop.listed = LISTED
    sampler.look_at_figures()
    assert ["gap" in line for line in lines_of(tmp_path)[1:]] == [False, True, False]
    assert sampler.gaps == 1


def test_what_people_watch(tmp_path: Path) -> None:
    shop = Shop()
    sampler = sampler_of(shop, tmp_path)
    assert live_rows(None) == []
    (row,) = live_rows(sampler)
    assert {row[name] for name in ("free", "held", "sold", "line", "decided", "oversold", "audit")} == {None}
    sampler.look_at_figures()
    sampler.look_at_audit("a")
    (row,) = live_rows(sampler)
    assert (row["free"], row["line"], row["decided"], row["oversold"], row["audit"]) == (5, 1, 4, 0, True)


@pytest.mark.parametrize(
    ("figures", "total", "excess"),
    [
        ({"available": 0, "held": 4, "sold": 8}, 10, 2),
        ({"available": -1, "held": 4, "sold": 6}, 10, 1),
        ({"available": 0, "held": 4, "sold": 6}, 10, 0),
        ({"available": 0, "held": 4, "sold": 8}, None, None),
    ],
)
def test_oversold_is_seen_while_it_happens(
    tmp_path: Path, figures: dict[str, int], total: int | None, excess: int | None
) -> None:
    sampler = sampler_of(Shop(), tmp_path, total=total)
    sampler.figures["a"] = figures
    assert live_rows(sampler)[0]["oversold"] == excess


def test_a_broken_invariant_is_named(tmp_path: Path) -> None:
    shop = Shop()
    broken = {"id": "I1", "name": "nothing is oversold", "ok": False}
    shop.audited = {"ok": False, "invariants": [broken], "counts": {}}
    sampler = sampler_of(shop, tmp_path)
    sampler.look_at_audit("a")
    (row,) = live_rows(sampler)
    assert (row["audit"], row["broken"]) == (False, ["I1 nothing is oversold"])


def test_looks_end_when_stopped_and_audits_rest_between(tmp_path: Path) -> None:
    sampler, pauses = sampler_of(Shop(), tmp_path), list[float]()

    def sleep(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == 3:
            sampler.stop()

    sampler.watch_audits(sleep=sleep)
    sampler.watch_figures(sleep=sleep)
    sampler.look_at_figures()
    assert len(pauses) == 3
    assert min(pauses) >= AUDIT_EVERY_SECONDS
    assert REST_AFTER_AUDIT >= 10
    assert len(lines_of(tmp_path)) == 4
