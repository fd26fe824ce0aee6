"""verify_sale.py reads what a shop serves: whole, cut short, broken off, and while it grows. Serves it on loopback."""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from types import SimpleNamespace

import pytest

from loadtest.verify import verify_sale
from loadtest.verify.__main__ import all_tickets, judge, recorded, running
from loadtest.verify.signed_log import SLUG, SignedLog, checkpoint_of, tickets_of, write
from loadtest.verify.tamperings import Leaves, change_price, favour_behind_a_shield, oversell
from loadtest.verify.verify_sale import RULES, Verifier, main, run

PATIENCE_SECONDS = 120
TEXTS = write(recorded())
IN_THIRD_LEAF = len(TEXTS[0]) + len(TEXTS[1]) + 10


class CutLog(SignedLog):
    """Serves a log whose checkpoint or tile ends after some bytes."""

    def __init__(self, texts: Sequence[bytes], *, part: str, length: int) -> None:
        super().__init__(texts)
        self._part, self._length = part, length

    def get(self, path: str) -> bytes:
        whole = super().get(path)
        return whole[: self._length] if self._part in path else whole


class LogServer(ThreadingHTTPServer):
    """Serves a log over HTTP. broken: the part of an address whose answers end one byte before they should."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), LogHandler)
        self.log, self.broken = SignedLog(TEXTS), ""

    @property
    def sale(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/sales/{SLUG}/"

    def kept_in(self, folder: Path) -> dict[str, str]:
        """Return what was kept of this log below `folder`."""
        kept = folder / f"127.0.0.1_{self.server_port}_{SLUG}"
        return {file.name: file.read_text() for file in kept.glob("*")}


class LogHandler(BaseHTTPRequestHandler):
    server: LogServer

    def do_GET(self) -> None:
        body = self.server.log.get(self.path)
        is_broken = bool(self.server.broken) and self.server.broken in self.path
        self.send_response(200)
        self.send_header("Content-Length", str(len(body) + is_broken))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.fixture
def server() -> Iterator[LogServer]:
    """A shop that serves the recorded sale's log."""
    with LogServer() as served:
        thread = Thread(target=served.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        thread.start()
        yield served
        served.shutdown()
        thread.join()


def test_a_tile_cut_short_anywhere_is_named_at_the_first_leaf_that_is_not_whole() -> None:
    at = 0
    for number, text in enumerate(TEXTS):
        for length in (at, at + 1, at + 2, at + 2 + len(text) // 2, at + 1 + len(text)):
            verifier = Verifier(CutLog(TEXTS, part="/tile/", length=length).get, SLUG)
            verifier.read_keys()
            verifier.round()
            assert verifier.replay.faults["format"][0].startswith(f"leaf {number}: cannot be read"), length
            assert "tree" in verifier.replay.faults, length
        at += 2 + len(text)
    assert judge(CutLog(TEXTS, part="/tile/", length=at)) == set()  # the control: the whole tile


def test_a_checkpoint_cut_short_anywhere_cannot_be_read() -> None:
    whole = len(checkpoint_of(TEXTS).encode())
    for length in range(whole):
        with pytest.raises(ValueError, match=r"this is no checkpoint|can't decode byte"):
            judge(CutLog(TEXTS, part="/checkpoint", length=length))
    assert judge(CutLog(TEXTS, part="/checkpoint", length=whole)) == set()  # the control


@pytest.mark.parametrize(
    ("part", "length", "code", "said"),
    [
        ("/tile/", IN_THIRD_LEAF, 1, [f"✗ {RULES['tree']}", f"✗ {RULES['format']}", "leaf 2: cannot be read"]),
        ("/checkpoint", 60, 2, ["The log could not be read", "this is no checkpoint"]),
        ("/fairdrop-keys", 60, 2, ["The log could not be read"]),
    ],
)
def test_what_comes_cut_short_is_said_and_nothing_is_kept(
    part: str, length: int, code: int, said: list[str], server: LogServer, tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    server.log = CutLog(TEXTS, part=part, length=length)
    assert main([server.sale, "--keep", str(tmp_path)]) == code
    printed = "".join(capsys.readouterr())
    assert [each for each in said if each not in printed] == []
    assert server.kept_in(tmp_path) == {}
    server.log = SignedLog(TEXTS)  # the control
    assert main([server.sale, "--keep", str(tmp_path)]) == 0
    assert server.kept_in(tmp_path) == {str(len(TEXTS)): checkpoint_of(TEXTS)}


@pytest.mark.parametrize("part", ["/fairdrop-keys", "/checkpoint", "/tile/"])
def test_an_answer_that_is_broken_off_is_no_verdict(
    part: str, server: LogServer, capsys: pytest.CaptureFixture[str]
) -> None:
    server.broken = part
    assert main([server.sale]) == 2
    assert "The log could not be read: IncompleteRead" in capsys.readouterr().err


def test_one_file_checks_a_served_log_and_a_ticket(server: LogServer, tmp_path: Path) -> None:
    """As a stranger runs it: a copy of the file, in a folder where nothing else is."""
    script, ticket = tmp_path / "verify_sale.py", tmp_path / "ticket"
    shutil.copy(verify_sale.__file__, script)
    ticket.write_text(f"{all_tickets(recorded())[0]}\n")
    words = [server.sale, "--ticket", str(ticket), "--keep", str(tmp_path / "kept")]
    done = subprocess.run(
        [sys.executable, "-I", str(script), *words],
        cwd=tmp_path, capture_output=True, text=True, timeout=PATIENCE_SECONDS, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    assert [sentence for sentence in RULES.values() if f"  ✓ {sentence}\n" not in done.stdout] == []
    assert f"{len(TEXTS)} leaves" in done.stdout.splitlines()[0]
    assert server.kept_in(tmp_path / "kept") == {str(len(TEXTS)): checkpoint_of(TEXTS)}


def test_a_ticket_whose_place_another_has_is_named_and_nothing_is_kept(
    server: LogServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place, file = next(leaf for leaf in recorded() if leaf["kind"] == "admitted"), tmp_path / "ticket"
    file.write_text(tickets_of([{**place, "request": "friend"}])[0])
    assert main([server.sale, "--ticket", str(file), "--keep", str(tmp_path)]) == 1
    assert f"✗ {RULES['ticket']}" in capsys.readouterr().out
    assert server.kept_in(tmp_path) == {}
    file.write_text(tickets_of([place])[0])  # the control
    assert main([server.sale, "--ticket", str(file), "--keep", str(tmp_path)]) == 0
    assert [*server.kept_in(tmp_path)] == [str(len(TEXTS))]


def test_a_checkpoint_that_was_kept_is_compared_by_the_next_call(
    server: LogServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    server.log = SignedLog(TEXTS[:30])
    assert main([server.sale, "--keep", str(tmp_path)]) == 0
    server.log = SignedLog(write(change_price(recorded())))
    assert main([server.sale]) == 0  # the control: without what was kept nobody sees
    assert main([server.sale, "--keep", str(tmp_path)]) == 1
    assert f"✗ {RULES['kept']}" in capsys.readouterr().out
    assert server.kept_in(tmp_path) == {"30": checkpoint_of(TEXTS[:30])}


def follow(stages: Sequence[SignedLog], keep: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[int, int]:
    """Follow a log that is the next of `stages` after each second, and is interrupted in the last; return the exit
    code, and how often it waited.
    """
    waited: list[float] = []

    def wait(seconds: float) -> None:
        waited.append(seconds)
        if len(waited) == len(stages):
            raise KeyboardInterrupt

    monkeypatch.setattr(verify_sale, "time", SimpleNamespace(**{**vars(time), "sleep": wait}))
    verifier = Verifier(lambda path: stages[len(waited)].get(path), SLUG)
    return run(verifier, follow=True, keep=keep), len(waited)


def test_who_follows_a_growing_log_reads_each_leaf_and_ends_with_a_verdict(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    sizes = (1, 20, 20, 30, len(TEXTS))
    code, waited = follow([SignedLog(TEXTS[:size]) for size in sizes], tmp_path, monkeypatch)
    assert (code, waited) == (0, len(sizes))
    *told, verdict = capsys.readouterr().out.split("no fault\n")
    assert [each.split()[1] for each in told] == [str(size) for size in sizes]
    assert [sentence for sentence in RULES.values() if f"  ✓ {sentence}\n" not in verdict] == []
    assert [file.name for file in tmp_path.iterdir()] == [str(len(TEXTS))]


@pytest.mark.parametrize(
    ("change", "rule"),
    [(oversell, "units"), (change_price, "tree"), (lambda leaves: leaves[:5], "kept")],
    ids=["a rule", "another view", "an old checkpoint"],
)
def test_who_follows_a_log_is_stopped_by_the_first_fault(
    change: Callable[[Leaves], Leaves], rule: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    stages = [SignedLog(TEXTS[:10]), SignedLog(write(change(recorded()))), SignedLog(TEXTS)]
    assert follow(stages, tmp_path, monkeypatch) == (1, 1)
    printed = capsys.readouterr().out
    assert printed.count("no fault") == 1
    assert f"✗ {RULES[rule]}" in printed
    assert [*tmp_path.iterdir()] == []


@pytest.mark.parametrize(
    ("leaves", "ended_minutes_ago", "code"),
    [(running(recorded()), 8, 1), (running(recorded()), 6, 0), (running(recorded()), -8, 0), (recorded(), 8, 0)],
    ids=["the end is never published", "it may be late, or a clock wrong", "the sale goes on", "it is published"],
)
def test_an_end_that_the_log_does_not_tell_is_named(
    leaves: Leaves, ended_minutes_ago: int, code: int, server: LogServer, capsys: pytest.CaptureFixture[str]
) -> None:
    """Or nobody would ever ask whether all are answered: `closed` is a leaf that the shop has to publish."""
    ends = datetime.now(UTC) - timedelta(minutes=ended_minutes_ago)
    server.log = SignedLog(write(leaves), ends=ends.isoformat())
    assert main([server.sale]) == code
    mark = "✗" if code else "✓" if leaves == recorded() else "–"
    assert f"{mark} {RULES['answered']}" in capsys.readouterr().out


@pytest.mark.parametrize("ends", ["", "soon"])
def test_a_copy_of_a_log_is_checked_though_nobody_says_when_its_sale_ends(ends: str, server: LogServer) -> None:
    server.log = SignedLog(TEXTS, ends=ends)
    assert main([server.sale]) == 0


def test_who_left_is_counted_and_the_ticket_shows_what_is_said_of_its_place(
    server: LogServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The control is the sale as it was, in which nobody left after somebody behind them was decided."""
    leaves, tickets = recorded(), all_tickets(recorded())
    (gone,) = (leaf["request"] for leaf in leaves if leaf.get("outcome") == "left")
    at = next(
        n for n, leaf in enumerate(leaf for leaf in leaves if leaf["kind"] == "admitted") if leaf["request"] == gone
    )
    file = tmp_path / "ticket"
    file.write_text(tickets[at])
    cancelled = sum(leaf.get("outcome") == "cancelled" for leaf in leaves)
    main([server.sale, "--ticket", str(file)])
    said = capsys.readouterr().out
    assert "left the line: 1, of these 0 after" in said
    assert f"gave up a hold: {cancelled}\n" in said
    assert f"your place {at + 1}, by the log: left\n" in said
    server.log = SignedLog(write(favour_behind_a_shield(recorded())))
    main([server.sale])
    assert "left the line: 2, of these 1 after" in capsys.readouterr().out


def test_who_waited_at_a_loss_and_was_never_answered_is_counted(
    server: LogServer, capsys: pytest.CaptureFixture[str]
) -> None:
    leaves = running(recorded())
    waits = len({leaf["request"] for leaf in leaves if leaf["kind"] == "admitted"}) - len(
        {leaf["request"] for leaf in leaves if leaf["kind"] in ("decided", "ended")}
    )
    last = max(leaf["ordinal"] for leaf in leaves if leaf["kind"] == "admitted")
    loss = {"kind": "recovered", "lost": [[last + 1, last + 9]], "restored": [], "at": leaves[-1]["at"]}
    server.log = SignedLog(write([*leaves, loss]))
    assert main([server.sale]) == 0
    assert f"0 put back in line; {waits} not answered\n" in capsys.readouterr().out
    assert waits > 0
