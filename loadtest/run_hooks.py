"""Runs a flood inside Locust: prepares it, gives every process its part, ends it, has it judged, sets the exit code.
Never lets a worker judge: one process sees the whole, the master or the only one.
Called by Locust's events through the locustfile.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
from typing import Any

import gevent
import gevent.pool
from locust.runners import MasterRunner, WorkerRunner

from loadtest import arguments, closing, web_tab
from loadtest.conversation import recheck
from loadtest.crowd import Crowd, clear_progress
from loadtest.follow_up import HELD, WAITING
from loadtest.followers import CONNECTIONS, Followers, open_session
from loadtest.history import clear_history
from loadtest.sampling import Sampler
from loadtest.shop_api import ShopApi, ShopError, check_host
from loadtest.watching import end_watch, watch

logger = logging.getLogger(__name__)

SHARE_MESSAGE, DONE_MESSAGE, HOME_MESSAGE = "flood_share", "flood_done", "flood_go_home"
USAGE_ERROR = 2
TICK_SECONDS = 0.25
LEAVE_PATIENCE_SECONDS = 20.0
RECHECK_PATIENCE_SECONDS = 60.0


class FloodRun:
    """One process's view of the run; a web page may start several runs one after the other."""

    def __init__(self) -> None:
        self.crowd: Crowd | None = None
        self._followers: Followers | None = None
        self._environment: Any = None
        self._share: dict[str, Any] = {}
        self._books: closing.Books | None = None
        self.sampler: Sampler | None = None
        self._workers_left = 0
        self._workers = 1

    def listen_to(self, events: Any) -> None:
        """Register for everything this class reacts to."""
        events.init_command_line_parser.add_listener(arguments.declare)
        events.init.add_listener(self.on_init)
        events.test_start.add_listener(self.on_test_start)
        events.test_stopping.add_listener(self.on_test_stopping)
        events.test_stop.add_listener(self.on_test_stop)
        events.quitting.add_listener(self.on_quitting)

    # Preparation

    def on_init(self, environment: Any, **_: Any) -> None:
        """Listen to the other processes; without a web page, refuse a flood that cannot work before it begins."""
        self._environment = environment
        runner = environment.runner
        if isinstance(runner, WorkerRunner):
            runner.register_message(SHARE_MESSAGE, self._on_share)
            runner.register_message(HOME_MESSAGE, self._on_go_home)
            return
        gevent.spawn(_end_with_parent)
        if isinstance(runner, MasterRunner):
            runner.register_message(DONE_MESSAGE, self._on_worker_done)
        web_tab.add_to(environment, sampler=lambda: self.sampler)
        if environment.web_ui is None:
            try:
                self._prepare()
            except ShopError as error:
                print(error, file=sys.stderr)
                sys.exit(USAGE_ERROR)

    def on_test_start(self, environment: Any, **_: Any) -> None:
        """Give every process its part of the crowd and begin."""
        if isinstance(environment.runner, WorkerRunner):
            self._begin(part=self._share["part"], parts=self._share["parts"], sales=self._share["sales"])
            return
        try:
            books = self._books = self._prepare()
        except ShopError as error:
            logger.error("%s", error)
            environment.process_exit_code = USAGE_ERROR
            gevent.spawn(self._end_run)
            return
        clear_history(books.folder)
        clear_progress(books.folder)
        self.sampler = watch(books, options=environment.parsed_options)
        if isinstance(environment.runner, MasterRunner):
            self._share_out(environment.runner, books=books)
        else:
            self._begin(part=0, parts=1, sales=list(books.sales))

    def _prepare(self) -> closing.Books:
        """Check the host, find the sales, open the books."""
        wanted = arguments.wanted_from(self._environment.parsed_options)
        host = self._environment.host or ""
        check_host(host, owned=wanted.owned)
        return closing.open_books(ShopApi(host, audit_token=wanted.audit_token), wanted=wanted)

    def _share_out(self, runner: MasterRunner, *, books: closing.Books) -> None:
        """Tell every worker which part of the crowd is its own; Locust delivers this before the order to begin."""
        workers = list(runner.clients.ready)
        self._workers = self._workers_left = len(workers)
        for part, worker in enumerate(workers):
            share = {"part": part, "parts": len(workers), "sales": list(books.sales)}
            runner.send_message(SHARE_MESSAGE, share, worker.id)

    def _on_share(self, msg: Any, **_: Any) -> None:
        self._share = msg.data

    # The run of one process

    def _begin(self, *, part: int, parts: int, sales: list[str]) -> None:
        wanted = arguments.wanted_from(self._environment.parsed_options)
        population = wanted.population(tuple(sales))
        self.crowd = Crowd(population, folder=wanted.folder, part=part, parts=parts)
        session = open_session(self._environment.host, request_event=self._environment.events.request)
        self._followers = Followers(session, crowd=self.crowd)
        self.crowd.follow = self._followers.follow
        gevent.spawn(self._accompany, self.crowd)

    def _accompany(self, crowd: Crowd) -> None:
        """Show progress until all visits are made and every place is at its end; close the record, end the run."""
        while not self._at_end(crowd):
            crowd.write_progress()
            gevent.sleep(TICK_SECONDS)
        if not self._finish(crowd):
            return  # the run was stopped from outside, and whoever stopped it finishes it
        if isinstance(self._environment.runner, WorkerRunner):
            self._environment.runner.send_message(DONE_MESSAGE)
        else:
            self._end_run()

    def _at_end(self, crowd: Crowd) -> bool:
        """Say whether every visit was made and every place followed to its end."""
        return crowd.finished and (self._followers is None or not self._followers.at_work)

    def _finish(self, crowd: Crowd) -> bool:
        """Ask for every place once more and close the record, once; say whether this call did it."""
        followers = self._followers
        if crowd is not self.crowd or followers is None:
            return False
        self.crowd = self._followers = None
        followers.stop()
        self._recheck(crowd, followers)
        crowd.close()
        return True

    def _recheck(self, crowd: Crowd, followers: Followers) -> None:
        """Ask for the state of every known request once more; one that is not at rest is asked again for a while."""
        moving = list(crowd.known.values())
        with gevent.Timeout(RECHECK_PATIENCE_SECONDS, False):
            while moving:
                pool = gevent.pool.Pool(CONNECTIONS)
                states = pool.map(lambda known: recheck(followers.calls, known), moving)
                moving = [known for known, state in zip(moving, states, strict=True) if state in (*WAITING, HELD)]
                gevent.sleep(TICK_SECONDS)

    def _on_worker_done(self, **_: Any) -> None:
        self._workers_left -= 1
        if self._workers_left == 0:
            gevent.spawn(self._end_run)

    def _on_go_home(self, **_: Any) -> None:
        if self.crowd:
            self.crowd.send_home()

    def _end_run(self) -> None:
        """Stop the users; with a web page Locust stays for the next run, without one it ends."""
        runner = self._environment.runner
        if self._environment.web_ui is not None:
            runner.stop()
        else:
            runner.quit()

    # The end

    def on_test_stopping(self, **_: Any) -> None:
        """Let nobody else in, and give those inside time to leave by themselves: a cut-off question proves nothing."""
        crowd = self.crowd
        if crowd is None:
            return
        crowd.send_home()
        with gevent.Timeout(LEAVE_PATIENCE_SECONDS, False):
            while not self._at_end(crowd):
                gevent.sleep(TICK_SECONDS)

    def on_test_stop(self, environment: Any, **_: Any) -> None:
        """Close this process's record; on the process that sees the whole, have the run judged."""
        if self.crowd:
            self.crowd.send_home()
            self._finish(self.crowd)
        if isinstance(environment.runner, WorkerRunner):
            return
        books, self._books = self._books, None
        if books is None:
            return
        if isinstance(environment.runner, MasterRunner) and self._workers_left > 0:
            environment.runner.send_message(HOME_MESSAGE)
        environment.process_exit_code = closing.close_books(books, files=self._workers)
        end_watch(self.sampler, folder=books.folder)

    def on_quitting(self, environment: Any, **_: Any) -> None:
        """Judge a run that was interrupted before Locust could stop it; a worker's own code says nothing."""
        if isinstance(environment.runner, WorkerRunner):
            environment.process_exit_code = 0
        elif self._books is not None:
            environment.runner.stop()


def _end_with_parent() -> None:
    """Started by run_flood: end with it, also when it was killed and could not say so; nobody else would end us."""
    parent = int(os.environ.get(arguments.PARENT_VARIABLE, "0"))
    while parent and os.getppid() == parent:
        gevent.sleep(TICK_SECONDS)
    if parent and os.getpgrp() == os.getpid():
        os.killpg(os.getpid(), signal.SIGKILL)
