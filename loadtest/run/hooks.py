"""Runs a flood inside Locust: prepares it, gives every process its part, ends it, has it judged, sets the exit code.
Never lets a worker judge: one process sees the whole, the master or the only one.
"""

from __future__ import annotations

import logging
import sys
import time
from dataclasses import astuple
from pathlib import Path
from typing import Any

import gevent
import gevent.lock
from locust.runners import MasterRunner, WorkerRunner

from loadtest.checker.load_generator import LoadMeter, clear_load
from loadtest.checker.stages import PLAN_FILE, write_plan
from loadtest.checker.verdict import clear_verdict
from loadtest.plan import options
from loadtest.plan.arrivals import Arrivals, Stage
from loadtest.record.history import clear_history
from loadtest.record.tickets import clear_tickets
from loadtest.run import books as closing
from loadtest.run import web_tab
from loadtest.run.companions import end_with_parent, measure_load
from loadtest.run.exit_code import leave_with_code
from loadtest.run.hands import choose_hands, kinds_that_come
from loadtest.run.watching import end_unjudged, end_watch, watch
from loadtest.shop_api import ShopApi, ShopError, check_host
from loadtest.users.arrival_gate import ArrivalGate
from loadtest.users.crowd import Crowd, clear_progress
from loadtest.users.poller import Followers, open_session

logger = logging.getLogger(__name__)

SHARE_MESSAGE, DONE_MESSAGE, HOME_MESSAGE = "flood_share", "flood_done", "flood_go_home"
STOP_MESSAGE = "flood_stop_early"
# A run that cannot begin, and one that ends without a verdict.
USAGE_ERROR = NO_VERDICT = 2
TICK_SECONDS = 0.25
# From the order to begin to the first arrival: every process has its users by then.
LEAD_SECONDS = 2.0
NS = 1_000_000_000
LEAVE_PATIENCE_SECONDS = 20.0
RECHECK_PATIENCE_SECONDS = 60.0


class FloodRun:
    """One process's view of the run; a web page may start several runs one after the other."""

    def __init__(self) -> None:
        self.crowd: Crowd | None = None
        self.arrival_gate: ArrivalGate | None = None
        self._followers: Followers | None = None
        self._meter: LoadMeter | None = None
        self._environment: Any = None
        self._share: dict[str, Any] = {}
        self._books: closing.ClosingBooks | None = None
        self._closing: gevent.Greenlet | None = None
        self._finishing = gevent.lock.RLock()
        self._rechecking: gevent.Greenlet | None = None
        self._is_early = False
        self.last = web_tab.LastRun()
        self._workers_left = 0
        self._workers = 1

    def listen_to(self, events: Any) -> None:
        """Register for everything this class reacts to."""
        events.init_command_line_parser.add_listener(options.declare)
        events.init.add_listener(self.on_init)
        events.test_start.add_listener(self.on_test_start)
        events.test_stopping.add_listener(self.on_test_stopping)
        events.test_stop.add_listener(self.on_test_stop)
        events.quitting.add_listener(self.on_quitting)
        leave_with_code(events)

    # Preparation

    def on_init(self, environment: Any, **_: Any) -> None:
        """Listen to the other processes; without a web page, refuse a flood that cannot work before it begins."""
        self._environment = environment
        runner = environment.runner
        if isinstance(runner, WorkerRunner):
            runner.register_message(SHARE_MESSAGE, self._on_share)
            runner.register_message(HOME_MESSAGE, self._on_go_home)
            runner.register_message(STOP_MESSAGE, lambda **_: self._stop_early())
            return
        gevent.spawn(end_with_parent)
        if isinstance(runner, MasterRunner):
            runner.register_message(DONE_MESSAGE, self._on_worker_done)
        choose_hands(environment)
        web_tab.add_to(environment, last=lambda: self.last)
        try:
            if environment.web_ui is None:
                self._prepare()
            elif environment.host:
                check_host(environment.host, remote=self._wanted().remote)
        except ShopError as error:
            print(error, file=sys.stderr)
            sys.exit(USAGE_ERROR)

    def on_test_start(self, environment: Any, **_: Any) -> None:
        """Give every process its part of the crowd and begin, once an earlier run of this page is judged."""
        self._await_closing()
        self._is_early = False
        if isinstance(environment.runner, WorkerRunner):
            self._begin(**self._share)
            return
        try:
            books, arrivals, kinds = self._prepare()
            self._clear(books.folder, arrivals=arrivals)
            self._books = books
        except (ShopError, OSError) as error:
            logger.error("%s", error)
            environment.process_exit_code = USAGE_ERROR
            gevent.spawn(self._end_run)
            return
        sampler = watch(books, options=environment.parsed_options, kinds=kinds)
        self.last = web_tab.LastRun(sampler, books.folder)
        whole: dict[str, Any] = {
            "sales": list(books.sales),
            "begins_at_ns": time.time_ns() + int(LEAD_SECONDS * NS),
            "stages": [astuple(stage) for stage in arrivals.stages] if arrivals else None,
            "kinds": kinds,
            "folder": str(books.folder),
        }
        if isinstance(environment.runner, MasterRunner):
            self._share_out(environment.runner, whole=whole)
        else:
            self._begin(part=0, parts=1, **whole)

    def _clear(self, folder: Path, *, arrivals: Arrivals | None) -> None:
        """Make room for the record of this run; nothing of an earlier one stays. The plan goes in at once."""
        folder.mkdir(parents=True, exist_ok=True)
        clear_history(folder)
        clear_tickets(folder)
        clear_progress(folder)
        clear_load(folder)
        clear_verdict(folder)
        (folder / PLAN_FILE).unlink(missing_ok=True)
        if arrivals is not None:
            write_plan(folder, arrivals, shape=self._environment.shape_class.plan, mix=self._wanted().mix)

    def _wanted(self) -> options.Wanted:
        return options.wanted_from(self._environment.parsed_options)

    def _prepare(self) -> tuple[closing.ClosingBooks, Arrivals | None, dict[str, int] | None]:
        """Check the host, make the plan of arrivals if a shape wants one, say who comes, open the books."""
        # Until the verdict says otherwise: Locust would call a run sound that nobody judged.
        self._environment.process_exit_code = NO_VERDICT
        wanted = self._wanted()
        host = self._environment.host or ""
        check_host(host, remote=wanted.remote)
        # A shape of somebody else's may end or scale a run of the plain crowd.
        plan = getattr(self._environment.shape_class, "arrivals", None)
        arrivals = plan(wanted) if plan else None
        kinds = kinds_that_come(self._environment)
        books = closing.open_books(
            ShopApi(host, audit_token=wanted.audit_token),
            wanted=wanted,
            # A page may start several runs, and none of them may take the place of another.
            is_one_of_many=self._environment.web_ui is not None,
            name=getattr(self._environment.shape_class, "plan", "closed"),
        )
        books.visits = arrivals.total if arrivals else wanted.buyers
        return books, arrivals, kinds

    def _share_out(self, runner: MasterRunner, *, whole: dict[str, Any]) -> None:
        """Tell every worker which part of the crowd is its own; Locust delivers this before the order to begin."""
        workers = list(runner.clients.ready)
        self._workers = self._workers_left = len(workers)
        for part, worker in enumerate(workers):
            runner.send_message(SHARE_MESSAGE, whole | {"part": part, "parts": len(workers)}, worker.id)

    def _on_share(self, msg: Any, **_: Any) -> None:
        self._share = msg.data

    # The run of one process

    def _begin(
        self, *, part: int, parts: int, sales: list[str], stages: list[Any] | None, begins_at_ns: int,
        kinds: dict[str, int] | None, folder: str,
    ) -> None:  # fmt: skip
        wanted = self._wanted()
        arrivals = None if stages is None else Arrivals(tuple(Stage(*stage) for stage in stages), wanted.seed)
        population = wanted.population(tuple(sales), planned=arrivals.total if arrivals else None, kinds=kinds)
        self.crowd = Crowd(population, folder=Path(folder), part=part, parts=parts)
        # The order names a moment by the wall's clock; everything is measured by this host's steady one.
        begins_ns = begins_at_ns - (time.time_ns() - time.monotonic_ns())
        instants_ns = arrivals.instants_ns(part=part, parts=parts) if arrivals else None
        self.arrival_gate = ArrivalGate(self.crowd, instants_ns=instants_ns, begins_ns=begins_ns)
        self._meter = LoadMeter(Path(folder), begins_ns=begins_ns)
        session = open_session(self._environment.host, request_event=self._environment.events.request)
        self._followers = Followers(session, crowd=self.crowd)
        self.crowd.follow = self._followers.follow
        gevent.spawn(self.arrival_gate.open)
        gevent.spawn(measure_load, self._meter, goes_on=lambda crowd=self.crowd: self.crowd is crowd)
        gevent.spawn(self._accompany, self.crowd)

    def _accompany(self, crowd: Crowd) -> None:
        """Show progress until all visits are made and every place is at its end; close the record, end the run."""
        while not self._at_end(crowd):
            crowd.write_progress()
            gevent.sleep(TICK_SECONDS)
        if not self._finish(crowd) or self._is_early:
            return  # the run was stopped from outside, and the one that stopped it finishes it
        if isinstance(self._environment.runner, WorkerRunner):
            self._environment.runner.send_message(DONE_MESSAGE)
        else:
            self._end_run()

    def _at_end(self, crowd: Crowd) -> bool:
        """Say whether every visit was made and every place followed to its end."""
        return crowd.finished and (self._followers is None or not self._followers.at_work)

    def _finish(self, crowd: Crowd | None) -> bool:
        """Ask for every place once more and close the record, once; say whether this call did it.

        Anyone who comes meanwhile waits: a record that is still being written must not be judged.
        """
        with self._finishing:
            followers = self._followers
            if crowd is None or crowd is not self.crowd or followers is None:
                return False
            self.crowd = self.arrival_gate = self._followers = None
            followers.stop()
            if not self._is_early:
                # In a greenlet of its own: who stops the run early ends it.
                self._rechecking = gevent.spawn(self._recheck, crowd, followers)
                self._rechecking.get()
            if self._meter:
                self._meter.close()
            crowd.close()
            return True

    def _recheck(self, _crowd: Crowd, followers: Followers) -> None:
        followers.recheck_all(seconds=RECHECK_PATIENCE_SECONDS)

    def _on_worker_done(self, **_: Any) -> None:
        self._workers_left -= 1
        if self._workers_left == 0:
            gevent.spawn(self._end_run)

    def _on_go_home(self, **_: Any) -> None:
        self._send_home()

    def _send_home(self) -> None:
        """Let nobody else in."""
        if self.arrival_gate:
            self.arrival_gate.close()

    def _end_run(self) -> None:
        """Stop the users; with a web page Locust stays for the next run, without one it ends."""
        runner = self._environment.runner
        if self._environment.web_ui is not None:
            runner.stop()
        else:
            self._await_closing()
            runner.quit()

    # The end

    def on_test_stopping(self, **_: Any) -> None:
        """Let nobody else in, and give those inside time to leave by themselves: a cut-off question proves nothing.

        Somebody who presses Stop wants an end and no proof: they do not wait for anybody.
        """
        if web_tab.is_stopped_by_hand():
            self._stop_early()
        crowd = self.crowd
        if crowd is None or self._is_early:
            return
        crowd.is_stopping = True
        self._send_home()
        with gevent.Timeout(LEAVE_PATIENCE_SECONDS, False):
            while not self._at_end(crowd):
                gevent.sleep(TICK_SECONDS)

    def _stop_early(self) -> None:
        """Send everybody away at once, in every process; what they did is on record, and nobody judges it."""
        self._is_early = True
        if self._environment is not None and isinstance(self._environment.runner, MasterRunner):
            self._environment.runner.send_message(STOP_MESSAGE)
        self._send_home()
        if self._followers is not None:
            self._followers.stop()
        if self._rechecking is not None:
            self._rechecking.kill(block=False)

    def on_test_stop(self, environment: Any, **_: Any) -> None:
        """Close this process's record; on the process that sees the whole, have the run judged; return when it is.

        In a greenlet of its own: Locust may be told twice to end, and the second time kills those of its runner.
        """
        if self._closing is None or self._closing.ready():
            self._closing = gevent.spawn(self._close, environment)
        self._closing.join()

    def _await_closing(self) -> None:
        if self._closing is not None:
            self._closing.join()

    def _close(self, environment: Any) -> None:
        books, self._books = self._books, None
        try:
            self._send_home()
            self._finish(self.crowd)
            if books is not None and self._is_early:
                environment.process_exit_code = NO_VERDICT
                self.last = self.last._replace(is_early=True)
                end_unjudged(self.last.sampler, books=books)
            elif books is not None:
                self._judge(environment, books)
        except Exception:
            logger.exception("The run could not be closed or judged: it ends without a verdict.")

    def _judge(self, environment: Any, books: closing.ClosingBooks) -> None:
        if isinstance(environment.runner, MasterRunner) and self._workers_left > 0:
            environment.runner.send_message(HOME_MESSAGE)
        environment.process_exit_code = closing.close_books(books, files=self._workers)
        end_watch(self.last.sampler, books=books)

    def on_quitting(self, environment: Any, **_: Any) -> None:
        """Judge a run that was interrupted before Locust could stop it; a worker's own code says nothing.

        One that is being judged is judged to its end first.
        """
        if isinstance(environment.runner, WorkerRunner):
            environment.process_exit_code = 0
            self._await_closing()
            return
        if self._books is not None:
            if getattr(environment, "web_ui", None) is not None:
                self._stop_early()
            environment.runner.stop()
        # A runner that somebody else is stopping does nothing when it is told to.
        self.on_test_stop(environment)
