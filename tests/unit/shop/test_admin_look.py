"""The admin has the colours of the shop: one list of tokens, in two files for two kinds of pages. Reads files only."""

from __future__ import annotations

import re

from tests.rules.sources import ROOT

STATIC = ROOT / "shop" / "static" / "shop"
TOKEN = re.compile(r"--([\w-]+): (#[0-9a-f]{6});")
BOTH = re.compile(r"--([\w-]+): light-dark\((#[0-9a-f]{6}), (#[0-9a-f]{6})\);")


def test_the_admin_has_the_tokens_of_the_shop() -> None:
    light, dark = (dict(TOKEN.findall(part)) for part in (STATIC / "shop.css").read_text().split(":root {")[1:3])
    own = {name: (day, night) for name, day, night in BOTH.findall((STATIC / "admin" / "look.css").read_text())}
    assert len(own) >= 15
    assert own == {name: (light[name], dark[name]) for name in own}
