"""The clients' record: what is written is what is read, and a record that was cut off never passes for whole."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

from loadtest.record.history import (
    FAIL,
    OK,
    UNENDED,
    UNKNOWN,
    HistoryWriter,
    Operation,
    clear_history,
    history_files,
    is_complete,
    read_history,
)

ROOT = Path(__file__).resolve().parents[3]


def an_ask(number: int, **changes: object) -> Operation:
    """Return an operation that differs from its neighbours."""
    values = {
        "kind": "ask",
        "began_ns": number,
        "ended_ns": number + 5,
        "outcome": OK,
        "status": 202,
        "key": f"k{number}",
    }
    return Operation(**(values | changes))  # type: ignore[arg-type]


def write(folder: Path, name: str, operations: list[Operation]) -> Path:
    """Write a whole record of one process."""
    with HistoryWriter(folder, process_name=name) as writer:
        for operation in operations:
            writer.add(operation)
    return writer.path


def test_what_is_written_is_what_is_read(tmp_path: Path) -> None:
    operation = an_ask(
        7, buyer="b", sale="s", quantity=2, click="double", request_id="r", seq=2**53 + 1, state="queued", code=""
    )
    write(tmp_path, "one", [operation])
    (found,) = read_history(tmp_path).operations
    operation.clock = found.clock
    assert found == operation
    assert found.clock


def test_records_of_all_processes_are_merged_in_the_order_of_invocation(tmp_path: Path) -> None:
    write(tmp_path, "one", [an_ask(1), an_ask(4)])
    write(tmp_path, "two", [an_ask(3), an_ask(2, outcome=FAIL)])
    history = read_history(tmp_path)
    assert [operation.began_ns for operation in history.operations] == [1, 2, 3, 4]
    assert (history.files, history.cut_off) == (2, [])


def test_a_record_without_its_last_line_is_cut_off(tmp_path: Path) -> None:
    path = write(tmp_path, "one", [an_ask(1), an_ask(2)])
    assert is_complete(path)
    path.write_text("\n".join(path.read_text().splitlines()[:-1]) + "\n")
    assert not is_complete(path)
    assert read_history(tmp_path).cut_off == [path.name]


def test_a_record_cut_in_the_middle_of_a_line_keeps_what_came_before(tmp_path: Path) -> None:
    path = write(tmp_path, "one", [an_ask(1), an_ask(2)])
    header, first, second, _ = path.read_text().splitlines()
    path.write_text("\n".join([header, first, second[:20]]))
    history = read_history(tmp_path)
    assert [operation.began_ns for operation in history.operations] == [1]
    assert history.cut_off == [path.name]


def test_a_record_that_lost_a_line_in_the_middle_is_cut_off(tmp_path: Path) -> None:
    path = write(tmp_path, "one", [an_ask(1), an_ask(2)])
    lines = path.read_text().splitlines()
    path.write_text("\n".join([lines[0], *lines[2:]]) + "\n")
    assert read_history(tmp_path).cut_off == [path.name]


def test_an_empty_record_is_not_complete(tmp_path: Path) -> None:
    path = tmp_path / "history-one.jsonl"
    path.touch()
    assert not is_complete(path)
    assert read_history(tmp_path).cut_off == [path.name]


# A client that dies in the middle of its second call, at once and without a word.
DIES = """
import os, signal, sys
from pathlib import Path
from loadtest.record.history import OK, HistoryWriter, Operation
writer = HistoryWriter(Path(sys.argv[1]), process_name="one")
first, second = Operation(kind="ask", key="k1", began_ns=1), Operation(kind="ask", key="k2", quantity=3, began_ns=5)
writer.begin(first)
first.ended_ns, first.outcome = 9, OK
writer.begin(second)
writer.add(first)
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_killed_client_loses_nothing_and_its_open_call_is_unknown(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", DIES, str(tmp_path)], cwd=ROOT, timeout=600, check=False)
    assert done.returncode == -signal.SIGKILL
    history = read_history(tmp_path)
    first, second = history.operations
    assert (first.key, first.outcome, first.ended_ns) == ("k1", OK, 9)
    assert (second.key, second.quantity, second.outcome, second.code) == ("k2", 3, UNKNOWN, UNENDED)
    assert second.ended_ns >= first.ended_ns
    assert first.client_died
    assert second.client_died
    assert history.cut_off == ["history-one.jsonl"]


def test_a_call_that_has_ended_is_one_operation(tmp_path: Path) -> None:
    operations = [an_ask(number, ended_ns=0, outcome=UNKNOWN, status=0) for number in (1, 2, 3)]
    with HistoryWriter(tmp_path, process_name="one") as writer:
        for operation in operations:
            writer.begin(operation)
        for operation in reversed(operations):
            operation.outcome, operation.ended_ns = FAIL, 9
            writer.add(operation)
    history = read_history(tmp_path)
    assert [(o.began_ns, o.ended_ns, o.outcome) for o in history.operations] == [(n, 9, FAIL) for n in (1, 2, 3)]
    assert history.cut_off == []
    assert len(writer.path.read_text().splitlines()) == 8


def test_a_call_still_open_when_its_client_ends_is_unknown_in_a_whole_record(tmp_path: Path) -> None:
    with HistoryWriter(tmp_path, process_name="one") as writer:
        writer.begin(an_ask(1))
    history = read_history(tmp_path)
    (operation,) = history.operations
    assert (operation.outcome, operation.code, operation.client_died) == (UNKNOWN, UNENDED, False)
    assert history.cut_off == []


def test_a_record_of_the_first_format_is_read(tmp_path: Path) -> None:
    path = tmp_path / "history-old.jsonl"
    path.write_text(
        '{"history":1,"clock":"here","wall_minus_monotonic_ns":5}\n'
        '{"kind":"ask","began_ns":1,"ended_ns":2,"outcome":"ok","status":202,"key":"k","request_id":"r","seq":1}\n'
        '{"end":true,"operations":1}\n'
    )
    history = read_history(tmp_path)
    (operation,) = history.operations
    assert (operation.request_id, operation.clock, operation.client_died) == ("r", "here", False)
    assert history.cut_off == []


def test_times_stay_on_their_own_clock_and_the_order_is_that_of_the_day(tmp_path: Path) -> None:
    for clock, offset_ns, began_ns in (("a", 1000, 1), ("b", 0, 1002), ("c", 2000, -998)):
        head = {"history": 2, "clock": clock, "wall_minus_monotonic_ns": offset_ns}
        call = {"number": 1, "kind": "ask", "began_ns": began_ns, "ended_ns": began_ns + 1, "outcome": "ok"}
        lines = [head, call, {"end": True, "operations": 1, "wall_minus_monotonic_ns": offset_ns + 7}]
        (tmp_path / f"history-{clock}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    history = read_history(tmp_path)
    assert [(o.clock, o.began_ns) for o in history.operations] == [("a", 1), ("b", 1002), ("c", -998)]
    assert history.clocks.offsets_ns == {"a": 1000, "b": 0, "c": 2000}
    assert history.clocks.shifts_ns == {"a": 0, "b": -1000, "c": 1000}
    assert history.clocks.drift_ns == 7
    assert (history.clocks.margin_ns(None), history.clocks.margin_ns(0.5)) == (None, 500_014)


def test_all_processes_of_this_machine_share_a_clock(tmp_path: Path) -> None:
    write(tmp_path, "one", [an_ask(1)])
    code = "import loadtest.record.clocks as clocks; print(clocks.clock_name(), end='')"
    other = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert read_history(tmp_path).operations[0].clock == other.stdout


def test_what_comes_after_the_end_is_not_part_of_the_run(tmp_path: Path) -> None:
    with HistoryWriter(tmp_path, process_name="one") as writer:
        writer.close()
        writer.add(an_ask(1))
    assert read_history(tmp_path).operations == []


def test_clearing_removes_records_and_nothing_else(tmp_path: Path) -> None:
    write(tmp_path, "one", [])
    (tmp_path / "verdict.json").write_text("{}")
    clear_history(tmp_path)
    assert history_files(tmp_path) == []
    assert (tmp_path / "verdict.json").exists()
