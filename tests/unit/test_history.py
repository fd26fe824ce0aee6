"""The clients' record: what is written is what is read, and a record that was cut off never passes for whole."""

from __future__ import annotations

from pathlib import Path

import pytest

from loadtest.history import (
    FAIL,
    OK,
    HistoryWriter,
    Operation,
    clear_history,
    history_files,
    is_complete,
    read_history,
)


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


@pytest.mark.parametrize("count", [0, 1, 4999, 5000, 5001])
def test_buffering_loses_nothing(tmp_path: Path, count: int) -> None:
    write(tmp_path, "one", [an_ask(number) for number in range(count)])
    history = read_history(tmp_path)
    assert len(history.operations) == count
    assert history.cut_off == []


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
