"""The streams' benchmark fails by what it measured: each floor can be broken, and no round decides alone."""

from __future__ import annotations

import pytest

from loadtest.bench.streams.report import PurchaseRound, figures_of, picture_of


def pair(
    *, alone_ms: float = 10.0, beside_ms: float = 12.0, asked: float = 300.0, news: float = 700.0
) -> tuple[PurchaseRound, PurchaseRound]:
    """Return a pair of rounds with these p99 waits."""
    return tuple(  # type: ignore[return-value]
        PurchaseRound(
            side=side,
            asked_per_second=asked,
            p50_ms=wait / 2,
            p99_ms=wait,
            busy=0.2,
            messages_per_second=messages,
        )
        for side, wait, messages in (("alone", alone_ms, 0.0), ("alongside", beside_ms, news))
    )


def broken(
    pairs: list[tuple[PurchaseRound, PurchaseRound]],
    *,
    pages: float = 8_000.0,
    rendered: float = 189.0,
    mailing_ms: float = 10.0,
    cleaning_ms: float = 10.0,
) -> list[str]:
    """Return the names of the figures that do not keep their bound. mailing_ms, cleaning_ms: a p99 of 10, alongside."""
    found = figures_of(
        pairs,
        mailed=[pair(beside_ms=mailing_ms)] * 3,
        cleaned=[pair(beside_ms=cleaning_ms)] * 3,
        pages={"kept": pages, "rendered": rendered},
        streams=2_000,
        asks=300,
        mails=10_000,
    )
    return [figure.name for figure in found if not figure.ok]


def test_a_good_run_keeps_every_floor_whatever_one_round_says() -> None:
    assert broken([pair(), pair(), pair()]) == []
    assert broken([pair(), pair(beside_ms=500.0), pair()]) == []


@pytest.mark.parametrize(
    ("bad", "said"),
    [
        ({"beside_ms": 16.0}, "p99 alongside streams ÷ without"),
        ({"asked": 200.0}, "purchases asked alongside them"),
        ({"news": 10.0}, "messages to all streams"),
    ],
    ids=["slower", "fewer", "silent"],
)
def test_each_floor_can_be_broken(bad: dict[str, float], said: str) -> None:
    (name,) = broken([pair(), pair(**bad), pair(**bad)])
    assert name.startswith(said)


def test_a_slow_page_breaks_its_floor() -> None:
    assert broken([pair()], pages=4_000.0) == ["sale page, one core, from memory"]
    assert broken([pair()], rendered=188.0) == ["sale page, one core, rendered by Django"]


def test_mails_that_slow_purchases_break_their_floors() -> None:
    assert broken([pair()], mailing_ms=10.4) == []
    p50, p99 = broken([pair()], mailing_ms=12.0)
    assert (p50[:3], p99[:3]) == ("p50", "p99")
    assert "10,000 mails" in p50


def test_what_disturbs_both_sides_alike_is_no_ratio() -> None:
    assert broken([pair(), pair(alone_ms=100.0, beside_ms=120.0), pair()]) == []


def test_the_chart_has_both_sides() -> None:
    drawn = picture_of([pair()], pages={"kept": 8_000.0, "rendered": 300.0})
    assert "alongside the streams" in drawn
    assert "no stream open" in drawn


def test_retention_that_slows_purchases_breaks_its_floors() -> None:
    assert broken([pair()], cleaning_ms=10.4) == []
    assert [name.split(" ÷")[0] for name in broken([pair()], cleaning_ms=12.0)] == [
        "p50 alongside retention",
        "p99 alongside retention",
    ]
