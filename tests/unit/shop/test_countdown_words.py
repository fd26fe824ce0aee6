"""The time left has the days of its language, and countdown.js writes the same; no clock says 24:00. No server."""

from __future__ import annotations

import re
from datetime import timedelta
from pathlib import Path

import pytest
from django.utils import translation

from shop.web.sale_presenter import clock

SCRIPTS = Path(__file__).resolve().parents[3] / "shop" / "static" / "shop"
SCRIPT = SCRIPTS / "countdown.js"
LEFT = timedelta(days=12, hours=1, minutes=1, seconds=5)


@pytest.mark.parametrize(("language", "days"), [("en", "d"), ("zh-hans", "天")])
def test_the_time_left_has_the_days_of_its_language(language: str, days: str) -> None:
    with translation.override(language):
        assert clock(LEFT) == f"12{days} 01:01:05"
        assert clock(LEFT - timedelta(days=12)) == "1:01:05"


def test_the_script_has_the_same_words() -> None:
    (words,) = re.findall(r'LANGUAGE === "en" \? "(.+)" : "(.+)"}', SCRIPT.read_text())
    assert words == ("d", "天")


def says_24_at_midnight(script: str) -> bool:
    """Say whether a script chooses its hours by `hour12`: without the two halves of a day, English says 24:00."""
    return "hour12" in script


def test_no_clock_says_24_at_midnight() -> None:
    """The control is how countdown.js asked before."""
    scripts = sorted(path for path in SCRIPTS.rglob("*.js") if ".min." not in path.name)
    assert SCRIPT in scripts
    assert [path.name for path in scripts if says_24_at_midnight(path.read_text())] == []
    assert says_24_at_midnight("new Date(moment).toLocaleTimeString(LANGUAGE, { hour12: false })")
