"""What a pass is bound to, what a challenge is worth, and when it is a rush. Needs no server."""

from __future__ import annotations

import base64
import json
import secrets
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from types import SimpleNamespace
from typing import Any

import altcha
import pytest
from django.test.utils import override_settings
from django.utils import translation
from hypothesis import given
from hypothesis import strategies as st

from inventory.exceptions import PassRequired
from inventory.line.admission import NO_PASS
from inventory.signing import signer_for
from shop.access import challenges, passes, rush, waiting
from shop.access.passes import CALM, NOT_ASKED, NOT_OURS
from shop.sales.catalogue import SaleCard
from shop.staff.sale_form import SaleForm
from tests.support.passes import solved

ANN, BOB = "a" * 22, "b" * 22
OPENS = datetime(2030, 1, 1, tzinfo=UTC)
CARD = SaleCard(
    sale_id=1, slug="lamp", sku="lamp", title="", tagline="", description="", picture="", price=Decimal(1),
    list_price=Decimal(1), currency="EUR", opens_at=OPENS, closes_at=OPENS + timedelta(hours=9),
    per_buyer_limit=1, hold_seconds=60, operator_state="on", pause_reason="", line_capacity=0, request_key="k",
    quantity=9, available=9, held=0, sold=0, version=3, fence=1, revision=1, terms_version=1, ordinal_base=0,
    pass_mode="always",
)  # fmt: skip
OTHER = replace(CARD, sale_id=2, slug="lamp-again")
FAR = 4_000_000_000


@pytest.fixture(autouse=True)
def little_work() -> Iterator[None]:
    """Let challenges be short, and keep no signer of other keys."""
    with override_settings(PASS_WORK=2):
        yield
    forget_keys()


def forget_keys() -> None:
    for kept in (signer_for, challenges._secrets):
        kept.cache_clear()


def refusal_of(text: str, card: SaleCard = CARD, buyer: str = ANN) -> str:
    """Return why a pass is refused."""
    found = passes.check(text, card, buyer=buyer)
    assert found.pass_id == NO_PASS
    assert found.refusal is not None
    return found.refusal.detail


def good(**changed: Any) -> str:
    return passes.make_pass(CARD, **{"buyer": ANN, "proof": "work", "until": FAR, **changed}).text


def test_a_pass_is_good_for_its_buyer_and_sale() -> None:
    found = passes.check(good(), CARD, buyer=ANN)
    assert (len(found.pass_id), found.refusal) == (22, None)
    assert refusal_of(good(), buyer=BOB) == NOT_OURS
    assert refusal_of(good(), card=OTHER) == NOT_OURS


def test_a_sale_that_asks_for_none_looks_at_none() -> None:
    assert passes.check("rubbish", replace(CARD, pass_mode="never"), buyer=ANN) == NOT_ASKED


def test_one_proof_is_one_pass_and_another_proof_another() -> None:
    assert good() == good()
    assert len({passes.check(good(proof=proof), CARD, buyer=ANN).pass_id for proof in ("work", "more", "work")}) == 2


def test_a_pass_ends() -> None:
    text = good(until=1_000_000)
    assert "ended" in refusal_of(text)


def test_a_pass_whose_text_was_changed_is_not_ours() -> None:
    text = good()
    end = text.index(".")
    for changed in (
        f"p{int(text[1:end]) + 1}{text[end:]}",
        f"c{text[1:]}",
        text[:-1],
        text + "A",
        "",
        " ",
        "p",
        "é" * 40,
    ):
        assert refusal_of(changed) in (NOT_OURS, PassRequired().detail)
    assert refusal_of(text.replace(text[end + 1 : end + 23], "A" * 22)) == NOT_OURS


@given(st.text(max_size=120))
def test_whatever_is_sent_is_refused_and_never_a_fault(text: str) -> None:
    refusal_of(text)


def test_a_pass_of_the_calm_is_good_in_the_calm_only() -> None:
    assert "without a proof" in refusal_of(good(kind=CALM))
    with pytest.raises(PassRequired):
        passes.make_calm_pass(CARD, buyer=ANN)
    assert passes.make_calm_pass(replace(CARD, pass_mode="never"), buyer=ANN).text[0] == CALM


def test_keys_may_be_rotated_and_an_id_stays_what_it_was() -> None:
    with override_settings(TOKEN_KEYS=["old"]):
        forget_keys()
        before = good()
        spent = passes.check(before, CARD, buyer=ANN).pass_id
    for keys in (["old", "new"], ["new", "old"]):
        with override_settings(TOKEN_KEYS=keys):
            forget_keys()
            assert passes.check(before, CARD, buyer=ANN).pass_id == spent
            assert passes.check(good(), CARD, buyer=ANN).pass_id == spent
            assert (good() != before) is (keys[0] == "new")
    with override_settings(TOKEN_KEYS=["new"]):
        forget_keys()
        assert refusal_of(before) == NOT_OURS


def test_a_solved_challenge_is_a_pass_and_the_same_one_again() -> None:
    payload = solved(challenges.make_challenge(CARD, buyer=ANN))
    first = challenges.redeem(payload, CARD, buyer=ANN)
    assert challenges.redeem(payload, CARD, buyer=ANN) == first
    assert passes.check(first.text, CARD, buyer=ANN).refusal is None
    for card, buyer in ((CARD, BOB), (OTHER, ANN)):
        with pytest.raises(PassRequired, match="not a pass of yours"):
            challenges.redeem(payload, card, buyer=buyer)


def test_an_answer_lies_anywhere_so_that_no_first_number_saves_tries(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of each half, also its outer half. The control is the answers of before, which all lay in the upper one."""
    answers: list[int] = []

    def note(*_: object, counter: int, **_more: object) -> SimpleNamespace:
        answers.append(counter)
        return SimpleNamespace(to_dict=dict)

    monkeypatch.setattr(altcha, "create_challenge", note)
    work = 600
    with override_settings(PASS_WORK=work):
        for _ in range(200):
            challenges.make_challenge(CARD, buyer=ANN)
    assert 1 <= min(answers) < work / 2
    assert 1.5 * work < max(answers) < 2 * work
    assert min(work + secrets.randbelow(work) for _ in answers) >= work
    with override_settings(PASS_WORK=1):
        challenges.make_challenge(CARD, buyer=ANN)
    assert answers[-1] == 1


def changed(payload: str, **more: Any) -> str:
    """Return a payload with other parameters, or another solution."""
    found = json.loads(base64.b64decode(payload))
    found["solution"] |= {name: more.pop(name) for name in ("counter", "derivedKey") if name in more}
    found["challenge"]["parameters"] |= more
    return base64.b64encode(json.dumps(found).encode()).decode()


@pytest.mark.parametrize(
    "more",
    [{"derivedKey": "00" * 32}, {"derivedKey": 7}, {"keyPrefix": "00"}, {"expiresAt": FAR}, {"data": None},
     {"cost": 2}, {"keySignature": None}, {"cost": 10**400}, {"expiresAt": "soon"}, {"nonce": 1}, {"salt": []}],
    ids=range(11),
)  # fmt: skip
def test_a_payload_that_was_changed_is_refused(more: dict[str, Any]) -> None:
    payload = solved(challenges.make_challenge(CARD, buyer=ANN))
    with pytest.raises(PassRequired):
        challenges.redeem(changed(payload, **more), CARD, buyer=ANN)
    assert challenges.redeem(changed(payload), CARD, buyer=ANN)  # the control: only written again


def test_a_challenge_of_somebody_else_s_making_is_refused() -> None:
    own = altcha.create_challenge("SHA-256", 1, hmac_secret="theirs", data={"sale": "lamp", "buyer": ANN, "most": 4})
    unsigned = altcha.create_challenge("SHA-256", 1, data={"sale": "lamp", "buyer": ANN, "most": 4})
    for made in (own, unsigned):
        with pytest.raises(PassRequired):
            challenges.redeem(solved(made.to_dict()), CARD, buyer=ANN)


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(
        ["challenge", "solution", "parameters", "signature", "counter", "derivedKey", "algorithm", "nonce", "salt",
         "cost", "data", "expiresAt"]), inner, max_size=6),
    max_leaves=12,
)  # fmt: skip


@given(JSON_VALUES | st.just("[" * 900))
def test_whatever_is_handed_in_is_refused_and_never_a_fault(value: Any) -> None:
    text = base64.b64encode((value if isinstance(value, str) else json.dumps(value)).encode()).decode()
    for payload in (text, text[1:], "é", "x" * 5000):
        with pytest.raises(PassRequired):
            challenges.redeem(payload, CARD, buyer=ANN)


def test_a_wait_is_its_buyer_s_and_takes_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shop.access.waiting.clocks.seconds", lambda: 1_000.0)
    wait = waiting.begin_wait(CARD, buyer=ANN)
    assert waiting.seconds_left(wait, CARD, buyer=ANN) == 60
    assert waiting.seconds_left(wait, CARD, buyer=BOB) is None
    assert waiting.seconds_left(wait, OTHER, buyer=ANN) is None
    assert waiting.seconds_left("900" + wait[4:], CARD, buyer=ANN) is None
    assert waiting.seconds_left("0" + wait, CARD, buyer=ANN) is None  # written otherwise, it would be one more proof
    monkeypatch.setattr("shop.access.waiting.clocks.seconds", lambda: 1_061.0)
    assert waiting.seconds_left(wait, CARD, buyer=ANN) == 0
    monkeypatch.setattr("shop.access.waiting.clocks.seconds", lambda: 9_000.0)
    assert waiting.seconds_left(wait, CARD, buyer=ANN) is None


def test_a_rush_begins_with_its_count_and_ends_with_its_calm(monkeypatch: pytest.MonkeyPatch) -> None:
    moment = [100.0]
    monkeypatch.setattr(rush, "monotonic", lambda: moment[0])
    card, calm = replace(CARD, pass_mode="rush", pass_rush=3), replace(OTHER, pass_mode="rush", pass_rush=3)
    rushes = rush.Rushes()
    for _ in range(2):
        rushes.note_ask(card)
    assert not rushes.is_on(card)
    rushes.note_ask(card)
    assert rushes.is_on(card)
    assert not rushes.is_on(calm)
    moment[0] += 10
    assert rushes.is_on(card)
    moment[0] += rush.RUSH_SECONDS
    assert not rushes.is_on(card)
    for _ in range(3):
        rushes.note_token()
    assert rushes.is_on(card)
    assert rushes.is_on(calm)


def test_few_in_each_second_are_no_rush(monkeypatch: pytest.MonkeyPatch) -> None:
    moment = [100.0]
    monkeypatch.setattr(rush, "monotonic", lambda: moment[0])
    card, rushes = replace(CARD, pass_mode="rush", pass_rush=3), rush.Rushes()
    for _ in range(20):
        rushes.note_ask(card)
        rushes.note_ask(card)
        assert not rushes.is_on(card)
        moment[0] += 1


@pytest.mark.parametrize(("language", "words"), [("en", "asked for by the API"), ("zh-hans", "通过接口申请")])
def test_the_form_of_a_sale_says_which_tokens_make_a_rush(language: str, words: str) -> None:
    """Those that pages give are not counted."""
    with translation.override(language):
        assert words in str(SaleForm.Meta.help_texts["pass_rush"])
