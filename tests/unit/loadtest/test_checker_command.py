"""The command that judges a kept run: what it reads, what can be said otherwise, and what leaves nothing to judge."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from loadtest.checker.__main__ import main
from loadtest.checker.verdict import AUDIT_FILE, VERDICT_FILE
from loadtest.record.expectations import FULL_SET, RUN_FILE, write_run
from tests.support.runs.hand_made_faults import one_unit_too_many, overtaken
from tests.support.runs.hand_made_runs import SALE, Run, write_books, write_machine
from tests.support.runs.hollow_runs import nobody_paid_late


@pytest.fixture
def kept(tmp_path: Path) -> Path:
    """Return the folder of a clean run."""
    run = Run()
    write_machine(tmp_path, "here", run.operations, clock="here")
    write_books(tmp_path, run)
    return tmp_path


def test_a_kept_run_is_judged_again(kept: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(kept)]) == 0
    assert "The record: 37 calls of 1 process, 0 without a definite answer" in capsys.readouterr().out
    run = Run()
    overtaken(run)
    write_machine(kept, "here", run.operations, clock="here")
    assert main([str(kept), "--json"]) == 1
    printed = json.loads(capsys.readouterr().out)
    assert printed == json.loads((kept / VERDICT_FILE).read_text())
    assert [check["name"] for check in printed["checks"] if check["count"]] == ["out of order"]


def test_the_books_can_be_given_as_the_audit_command_prints_them(kept: Path) -> None:
    run = Run()
    (kept / AUDIT_FILE).unlink()
    audit = kept / "printed.json"
    audit.write_text(json.dumps({SALE: run.book["after"]}))
    assert main([str(kept), "--audit", str(audit)]) == 0
    one_unit_too_many(run)
    audit.write_text(json.dumps({SALE: run.book["after"]}))
    assert main([str(kept), "--audit", str(audit)]) == 1
    audit.write_text(json.dumps({"another": run.book["after"]}))
    assert main([str(kept), "--audit", str(audit)]) == 1  # the audit of this sale is missing


def test_what_is_kept_with_a_run_can_be_said_otherwise(kept: Path) -> None:
    run = Run()
    nobody_paid_late(run)
    write_machine(kept, "here", run.operations, clock="here")
    assert main([str(kept)]) == 1
    write_run(kept, expects=FULL_SET - {"paid_late"}, files=1, seed=7)
    assert main([str(kept)]) == 0
    assert main([str(kept), "--expects", ",".join(sorted(FULL_SET))]) == 1
    write_run(kept, files=2)
    assert main([str(kept)]) == 1
    assert json.loads((kept / RUN_FILE).read_text()) == {
        "expects": sorted(FULL_SET - {"paid_late"}), "files": 2, "seed": 7,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--expects", "sold_out,rain"], "rain: a run can be expected to show sold_out"),
        (["--audit", "no-such-file"], "no-such-file is no audit"),
        (["--host", "http://127.0.0.1:1"], "No shop answers at http://127.0.0.1:1"),
    ],
)
def test_what_cannot_be_judged_is_said_in_one_sentence(
    kept: Path, words: list[str], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([str(kept), *words]) == 2
    assert sentence in capsys.readouterr().err


def test_without_a_record_or_books_there_is_nothing_to_judge(
    kept: Path, tmp_path_factory: pytest.TempPathFactory, capsys: pytest.CaptureFixture[str]
) -> None:
    (kept / AUDIT_FILE).unlink()
    assert main([str(kept)]) == 2
    assert "give the shop's --host, or an --audit" in capsys.readouterr().err
    assert main([str(tmp_path_factory.mktemp("empty"))]) == 2
    assert "There is no record" in capsys.readouterr().err


def test_each_further_machine_must_have_a_record(kept: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """An empty folder was copied wrongly; a page next to the folders of runs is none."""
    empty, page = kept / "empty", kept / "index.html"
    empty.mkdir()
    page.touch()
    for further in (empty, page, kept / "not-there"):
        assert main([str(kept), str(further)]) == 2
        assert capsys.readouterr().err == f"There is no record in {further}: files of clients are called history-*.\n"


def test_the_master_of_several_machines_has_no_record_of_its_own(
    kept: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    worker = tmp_path_factory.mktemp("worker")
    for path in kept.glob("history-*"):
        path.rename(worker / path.name)
    assert main([str(kept), str(worker)]) == 0
    # The control: one that was copied wrongly has no books either.
    books = (kept / AUDIT_FILE).rename(worker / "books.json")
    assert main([str(kept), str(worker), "--audit", str(books)]) == 2


@pytest.mark.parametrize("name", [AUDIT_FILE, RUN_FILE, "printed.json"])
@pytest.mark.parametrize("text", ["", "{", "[]", "7", '{"expects": 7}'])
def test_a_file_that_is_damaged_leaves_nothing_to_judge(
    kept: Path, name: str, text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (kept / name).write_text(text)
    assert main([str(kept), *(["--audit", str(kept / name)] if name == "printed.json" else [])]) == 2
    assert capsys.readouterr().err.startswith(str(kept / name))
