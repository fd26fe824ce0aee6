"""Each defence against robbers holds alone, and the attack's verdict is red when that defence is switched off.
Uses a web process of its own for each.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path

import pytest

from loadtest.bench.bots.attacks import (
    ATTACKS,
    ENVIRONMENT,
    NETWORK_LIMIT,
    PRESSES,
    Attack,
    PlayedAttack,
    mutant_of,
    play,
)
from loadtest.bench.bots.report import figures_of_attacks
from loadtest.mutants.defences import DEFENCES
from shop.buyers import issue_buyer
from shop.models import Sale
from tests.support.servers.shop_processes import web_process
from tests.support.shopkeeping import make_sale
from tests.support.shown_sales import shown_sales, wait_until_shown

MINTED = 10_000
EVERY_ATTACK = pytest.mark.parametrize("attack", ATTACKS, ids=[each.name for each in ATTACKS])


def test_every_defence_has_its_attack() -> None:
    assert [each.name for each in ATTACKS] == list(DEFENCES)


@EVERY_ATTACK
def test_a_defence_holds_and_without_it_the_verdict_is_red(
    attack: Attack, process_environment: dict[str, str], tmp_path: Path, new_sku: Callable[[], str]
) -> None:
    let_in = []
    for side, more in (("on", {}), ("off", mutant_of(attack.name))):
        folder = tmp_path / side
        folder.mkdir()
        card = make_sale(new_sku(), units=2 * PRESSES)
        Sale.objects.filter(pk=card.sale_id).update(**attack.columns)
        with web_process({**process_environment, **ENVIRONMENT, **more}, folder=folder) as web:
            wait_until_shown(web, card)
            let_in.append(play(attack, port=web.port, slug=card.slug))
    outcome = partial(PlayedAttack, name=attack.name, presses=PRESSES, limit=attack.limit)
    assert figures_of_attacks([outcome(defended=let_in[0], undefended=let_in[1])])[0].ok, let_in
    without = outcome(defended=let_in[1], undefended=let_in[1])
    assert not figures_of_attacks([without])[0].ok


@pytest.mark.parametrize("mutant", ["", "network_units"])
def test_tokens_from_before_the_opening_buy_no_more_than_a_press(
    mutant: str, process_environment: dict[str, str], tmp_path: Path, new_sku: Callable[[], str]
) -> None:
    """The control is no limit of a network: then each gets as much as its network may press, and still no more."""
    minted = [issue_buyer()[1] for _ in range(MINTED)]
    more = mutant_of(mutant) if mutant else {}
    with web_process({**process_environment, **ENVIRONMENT, **more}, folder=tmp_path) as web:
        card = shown_sales(web, new_sku)(units=1_000, network_limit=NETWORK_LIMIT)

        def let_in(network: str, tokens: Iterable[str]) -> int:
            pressed = partial(list, [(token, f"{network}.{number % 250}") for number, token in enumerate(tokens)])
            attack = Attack(name="minted", presses=pressed, limit=NETWORK_LIMIT)
            return play(attack, port=web.port, slug=card.slug)

        found = let_in("192.0.2", minted), let_in("198.51.100", (web.new_buyer().token for _ in range(2 * PRESSES)))
    assert found == ((PRESSES, PRESSES) if mutant else (NETWORK_LIMIT, NETWORK_LIMIT))
