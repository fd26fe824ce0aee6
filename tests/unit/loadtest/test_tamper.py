"""The adversary's lab: each tampering is named by its rule, and by none without it. Needs no server."""

from __future__ import annotations

import pytest

from loadtest.verify.__main__ import judge, main, recorded, try_out, try_signatures
from loadtest.verify.signed_log import SignedLog, write
from loadtest.verify.tamperings import TAMPERINGS, Tampering
from loadtest.verify.verify_sale import RULES, Verifier, run
from loadtest.verify.verify_sale import main as verify


def test_an_untampered_log_is_green_at_every_length() -> None:
    texts = write(recorded())
    for size in range(1, len(texts) + 1):
        # While the sale runs some wait; a second after its end not everybody is answered.
        assert judge(SignedLog(texts[:size])) <= {"answered"}, size
    assert judge(SignedLog(texts), kept=texts[:30]) == set()


@pytest.mark.parametrize("tampering", TAMPERINGS, ids=lambda tampering: tampering.name)
def test_each_tampering_is_named_by_its_rule_and_passes_without_it(tampering: Tampering) -> None:
    assert try_out(tampering, recorded())[1] == []


def test_every_rule_has_a_tampering() -> None:
    assert {each.rule for each in TAMPERINGS} | {"tree", "signed"} == {*RULES, ""}
    assert try_signatures(recorded()) == []


def test_a_checkpoint_that_was_kept_is_compared_the_next_time(
    tmp_path_factory: pytest.TempPathFactory, capsys: pytest.CaptureFixture[str]
) -> None:
    texts, file = write(recorded()), tmp_path_factory.mktemp("kept") / "folder" / "log.json"
    for served, code in ((texts[:30], 0), (texts, 0), (texts[:30], 1), (texts, 0)):
        assert run(Verifier(SignedLog(served).get, "copy"), file=file, follow=False) == code
    assert "✗ the log has grown from every checkpoint" in capsys.readouterr().out


def test_the_lab_prints_its_table(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 0
    assert capsys.readouterr().out.count("✓") >= len(TAMPERINGS)


def test_what_is_no_log_is_said_to_be_none(capsys: pytest.CaptureFixture[str]) -> None:
    assert verify(["http://127.0.0.1:9/sales/none/"]) == 2
    assert "could not be read" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        verify(["none"])


@pytest.mark.parametrize(
    "leaf", [b"", b"{", b"[]", b"{}", b'{"kind":"what","n":0,"at":0}', b'{"at":0,"kind":"opened","n":0}', b"\xff"]
)
def test_a_leaf_that_is_none_is_a_fault_and_no_failure(leaf: bytes) -> None:
    assert "format" in judge(SignedLog([leaf, *write(recorded())[1:]]))
