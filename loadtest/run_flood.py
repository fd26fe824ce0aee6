"""Floods a running shop from one command: starts Locust, shows one line of progress, prints the verdict table.
Never ends with 0 unless every check of the verdict holds; 1 is a broken check, 2 a flood that cannot begin.
Usage: python -m loadtest.run_flood --host http://127.0.0.1:8000 --audit-token T
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path
from types import FrameType

from loadtest import demo_shop
from loadtest.checker.stages import STAGES_FILE, stages_table
from loadtest.checker.table import render
from loadtest.checker.verdict import VERDICT_FILE, clear_verdict
from loadtest.plan import options as arguments
from loadtest.plan.population import AUTO_MIX, MIXES
from loadtest.plan.shapes import PLANS, arrivals_of
from loadtest.record.facts import COMMAND_VARIABLE, command_line
from loadtest.record.history import new_run_folder, runs_folder
from loadtest.record.log_sentences import LOGS_FILE
from loadtest.report import write_report
from loadtest.report.index import write_index
from loadtest.run.progress import ProgressLine
from loadtest.shop_api import ShopApi, ShopError, check_host
from loadtest.users.crowd import clear_progress

PROJECT = Path(__file__).resolve().parents[1]
LOG_FILE = "locust.log"
LOG_LINES_SHOWN = 15
TICK_SECONDS = 0.2
STOP_SECONDS = 1.0
CLOSED = "closed"  # the standard flood: as fast as answers come
USERS, SHAPE_USERS = 60, 200
# After so long those who are not in yet are sent home; with a shape counted from its last arrival.
CLOSED_SECONDS, SHAPE_EXTRA_SECONDS = 300, 120
OK, BROKEN, USAGE_ERROR, INTERRUPTED = 0, 1, 2, 130


def parse(argv: list[str] | None = None) -> argparse.Namespace:
    """Read the command line; its words are those of the locustfile."""
    parser = argparse.ArgumentParser(prog="python -m loadtest.run_flood", description="Flood a shop and judge it.")
    parser.add_argument("--host", default="http://127.0.0.1:8000")
    parser.add_argument("--audit-token", default=os.environ.get(arguments.AUDIT_TOKEN_VARIABLE, ""))
    parser.add_argument("--sales", default="", help="slugs with commas between; none: all open ones")
    parser.add_argument("--buyers", type=int, default=arguments.DEFAULT_BUYERS)
    parser.add_argument("--attempts", type=int, default=arguments.DEFAULT_ATTEMPTS)
    parser.add_argument("--shape", choices=[CLOSED, *PLANS], default=CLOSED, help="how buyers arrive; see the docs")
    parser.add_argument("--mix", choices=[AUTO_MIX, *MIXES], default=AUTO_MIX, help="who comes")
    parser.add_argument("--rate", type=float, default=0.0, help="with a shape: buyers a second")
    parser.add_argument("--seconds", type=float, default=0.0, help="with a shape: how long buyers keep coming")
    parser.add_argument(
        "--demo", action="store_true", help="flood fresh sales of the demo that runs from this checkout"
    )
    places = parser.add_mutually_exclusive_group()
    places.add_argument(
        "--artefacts", default="", help="folder in which this run gets one of its own, with CSV and HTML"
    )
    parser.add_argument(
        "--users",
        type=int,
        default=0,
        help=f"users that play the buyers (default: {USERS}; with a shape {SHAPE_USERS})",
    )
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--seed", type=int, default=arguments.DEFAULT_SEED)
    parser.add_argument("--expects", default=arguments.FULL_WORD, help=arguments.EXPECTS_HELP)
    places.add_argument(
        "--history", default="", help="folder for record and verdict; none: one of its own in out/flood"
    )
    parser.add_argument("--run-time", type=int, default=0, help="seconds after which buyers are sent home")
    parser.add_argument("--allow-remote", action="store_true", help="allow a host that is not here")
    options = parser.parse_args(_with_joined_token(sys.argv[1:] if argv is None else argv))
    options.users = options.users or (USERS if options.shape == CLOSED else SHAPE_USERS)
    options.runs = options.artefacts or ("" if options.history else str(runs_folder()))
    if options.runs:
        options.history = str(new_run_folder(Path(options.runs), name=options.shape))
    return options


def _with_joined_token(argv: list[str]) -> list[str]:
    """Join the token to its option: a random token may begin with a hyphen and would be taken for an option."""
    if "--audit-token" not in argv[:-1]:
        return argv
    place = argv.index("--audit-token")
    return [*argv[:place], f"--audit-token={argv[place + 1]}", *argv[place + 2 :]]


def check(options: argparse.Namespace) -> list[str]:
    """Return the sales to flood; raise ShopError with one clear sentence when this flood cannot work."""
    wanted = arguments.wanted_from(options)
    check_host(options.host, remote=wanted.remote)
    buyers = _plan(options, wanted=wanted)
    if not wanted.audit_token:
        raise ShopError(f"No audit token: give --audit-token or set {arguments.AUDIT_TOKEN_VARIABLE}.")
    if min(options.users, options.processes, options.run_time) < 1:
        raise ShopError("users, processes and run-time must be at least 1.")
    api = ShopApi(options.host, audit_token=wanted.audit_token)
    fresh = demo_shop.fresh_sales(api, buyers=buyers) if options.demo and not wanted.sales else []
    sales = list(api.open_sales(wanted.sales or fresh))
    for slug in sales:
        api.audit(slug)
    return sales


def _plan(options: argparse.Namespace, *, wanted: arguments.Wanted) -> int:
    """Return how many buyers come; set how long they may take where nothing was said."""
    if options.shape == CLOSED:
        options.run_time = options.run_time or CLOSED_SECONDS
        return wanted.buyers
    arrivals = arrivals_of(options.shape, rate=wanted.rate, seconds=wanted.seconds, seed=wanted.seed)
    options.run_time = options.run_time or int(arrivals.seconds) + SHAPE_EXTRA_SECONDS
    return arrivals.total


def locust_command(options: argparse.Namespace, *, sales: list[str], folder: Path) -> list[str]:
    """Return the command line of Locust; its own tables are kept out of sight in a file."""
    words = [sys.executable, "-m", "locust", "--headless", "--only-summary", "--loglevel", "WARNING"]
    files = [PROJECT / "loadtest" / "locustfile.py"]
    if options.shape != CLOSED:
        files.append(PROJECT / "loadtest" / "shapes" / f"{options.shape}.py")
        words += ["--rate", str(options.rate), "--seconds", str(options.seconds)]
    words += ["--locustfile", ",".join(str(file) for file in files), "--mix", options.mix]
    words += ["--json-file", str(folder / "locust")]
    if options.artefacts:
        words += ["--html", str(folder / "locust.html"), "--csv", str(folder / "locust"), "--csv-full-history"]
    # One looker alongside the buyers; all of them arrive at once, as they do when a sale opens.
    words += ["--host", options.host, "--users", str(options.users + 1), "--spawn-rate", str(options.users + 1)]
    words += ["--run-time", f"{options.run_time}s", "--sales", ",".join(sales), "--history", str(folder)]
    words += ["--buyers", str(options.buyers), "--attempts", str(options.attempts), "--seed", str(options.seed)]
    words += ["--expects", options.expects]
    if options.processes > 1:
        # Locust's own default listens on every interface, at a port that a second flood would want too.
        port = str(_free_port())
        words += ["--processes", str(options.processes), "--master-bind-host", "127.0.0.1"]
        words += ["--master-bind-port", port, "--master-port", port]
    if options.allow_remote:
        words += ["--allow-remote"]
    return words


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


def run(options: argparse.Namespace, *, sales: list[str]) -> int:
    """Run Locust to its end; print the verdict; return the exit code."""
    folder = Path(options.history).resolve()
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ShopError(str(error)) from error
    clear_verdict(folder)
    clear_progress(folder)
    # The token travels in the environment: a command line can be read by every user of the machine.
    environment = os.environ | {
        arguments.AUDIT_TOKEN_VARIABLE: options.audit_token,
        arguments.PARENT_VARIABLE: str(os.getpid()),
        COMMAND_VARIABLE: command_line(),
    }
    with (folder / LOG_FILE).open("wb") as log:
        process = subprocess.Popen(
            locust_command(options, sales=sales, folder=folder),
            cwd=PROJECT,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            code = _accompany(process, folder=folder)
        finally:
            _end(process)
    return _report(folder, code=code)


def _accompany(process: subprocess.Popen[bytes], *, folder: Path) -> int:
    line = ProgressLine(folder, out=sys.stdout)
    while True:
        with contextlib.suppress(subprocess.TimeoutExpired):
            code = process.wait(timeout=TICK_SECONDS)
            line.clear()
            return code
        line.show()


def _end(process: subprocess.Popen[bytes]) -> None:
    """Leave no process of Locust's group behind, also when this run was interrupted."""
    if process.poll() is None:
        process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(timeout=STOP_SECONDS)
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _report(folder: Path, *, code: int) -> int:
    """Print the verdict; without one, what Locust said last."""
    path = folder / VERDICT_FILE
    if not path.exists():
        said = (folder / LOG_FILE).read_text(errors="replace").splitlines()[-LOG_LINES_SHOWN:]
        print("The flood ended without a verdict. Locust said:", *said, sep="\n  ", file=sys.stderr)
        return code or BROKEN
    verdict = json.loads(path.read_text())
    print(render(verdict, colour=sys.stdout.isatty()), flush=True)
    if (folder / STAGES_FILE).exists():
        print("", stages_table(json.loads((folder / STAGES_FILE).read_text())), sep="\n", flush=True)
    if (folder / LOGS_FILE).exists():
        print(f"\n{(folder / LOGS_FILE).read_text()}", end="", flush=True)
    try:
        print(f"\nReport: {write_report(folder)}", flush=True)
    except OSError as error:
        print(f"\nThe report could not be written: {error}", file=sys.stderr)
    return OK if verdict["ok"] and code == OK else BROKEN


def _interrupt(_signal: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def main(argv: list[str] | None = None) -> int:
    """Flood and judge; return the exit code."""
    signal.signal(signal.SIGTERM, _interrupt)
    options = parse(argv)
    try:
        if options.demo:
            options.audit_token = options.audit_token or demo_shop.audit_token()
        code = run(options, sales=check(options))
        if options.artefacts:
            print(f"\nRecord, verdict, and Locust's HTML, CSV and JSON: {options.history}", flush=True)
        if options.runs:
            print(f"All runs: {write_index(Path(options.runs))}", flush=True)
        return code
    except ShopError as error:
        print(error, file=sys.stderr)
        return USAGE_ERROR
    except KeyboardInterrupt:
        print("The flood was interrupted: no verdict.", file=sys.stderr)
        return INTERRUPTED


if __name__ == "__main__":
    sys.exit(main())
