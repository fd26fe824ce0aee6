"""Finds the demo that runs from this checkout: its audit token, and fresh sales for one more flood.
Never opens its stores: the shop's own command makes the sales.
"""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

from loadtest.plan.options import AUDIT_TOKEN_VARIABLE
from loadtest.record.history import state_folder
from loadtest.shop_api import ShopApi, ShopError

PROJECT = Path(__file__).resolve().parents[1]
SEED_SECONDS, SHOWN_SECONDS, TICK_SECONDS = 60.0, 20.0, 0.2
# A small crowd fights for one thing, a greater one for three. Of eight buyers one finds a unit.
BUYERS_OF_ONE_SALE, SALES = 1500, 3
BUYERS_A_UNIT, MIN_UNITS = 8, 10


def audit_token() -> str:
    """Return the running demo's token; raises ShopError when none runs."""
    path = state_folder() / "demo.env"
    lines = path.read_text().splitlines() if path.exists() else []
    for line in lines:
        name, _, value = line.partition("=")
        if name == AUDIT_TOKEN_VARIABLE:
            return value
    raise ShopError("No demo runs from this checkout: start one with make demo, or name a running shop with HOST=.")


def goods_for(buyers: int) -> tuple[int, int]:
    """Return how many sales a crowd fights for, and how many units each has: few enough to be sold out."""
    sales = 1 if buyers < BUYERS_OF_ONE_SALE else SALES
    return sales, max(MIN_UNITS, buyers // BUYERS_A_UNIT // sales)


def fresh_sales(api: ShopApi, *, buyers: int) -> list[str]:
    """Have the demo make sales that nobody has bought from; return their slugs when the shop shows them open.

    Raises ShopError when the shop does not answer, or is not the one whose servers this checkout's demo runs.
    """
    api.sales()
    sales, units = goods_for(buyers)
    command = [sys.executable, "manage.py", "seed_demo", "again", "--sales", str(sales), "--units", str(units)]
    try:
        done = subprocess.run(
            command, cwd=PROJECT, capture_output=True, text=True, timeout=SEED_SECONDS, stdin=subprocess.DEVNULL
        )
    except subprocess.TimeoutExpired as error:
        raise ShopError("The demo's stores did not answer in time: no fresh sales were made.") from error
    if done.returncode:
        said = (done.stderr.strip().splitlines() or ["it gave no reason"])[-1]
        raise ShopError(f"The demo could not make fresh sales: {said}")
    slugs = done.stdout.strip().splitlines()[-1].removeprefix("made ").split(", ")
    _wait_until_open(api, slugs)
    return slugs


def _wait_until_open(api: ShopApi, slugs: list[str]) -> None:
    deadline = time.monotonic() + SHOWN_SECONDS
    while True:
        try:
            api.open_sales(slugs)
            return
        except ShopError as error:
            if time.monotonic() > deadline:
                sentence = f"{api.host_url} does not show the demo's fresh sales: is it the demo? ({error})"
                raise ShopError(sentence) from error
        time.sleep(TICK_SECONDS)
