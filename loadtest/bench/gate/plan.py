"""How long and how often a run measures: the full one, and a quick one that only shows that everything works. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from loadtest.bench.gate.admission import AdmissionPlan
from loadtest.bench.harness.benchmark import REPEATED
from loadtest.bench.load.loader import LoadWindow


@dataclass(frozen=True, kw_only=True)
class Plan:
    """admission: the turns of the gate and its rivals; pairs: those with limits and without.

    Settlement is in orders a round.
    """

    admission: AdmissionPlan
    pairs: AdmissionPlan
    road: LoadWindow
    settle_rounds: int = 3
    settle_batched: int = 15_000
    settle_single: int = 400


FULL = Plan(
    admission=AdmissionPlan(rounds=3, seconds=4.0, warm_up_seconds=1.0, connections=256),
    pairs=AdmissionPlan(rounds=15, seconds=2.0, warm_up_seconds=0.5, connections=256),
    road=LoadWindow(seconds=20.0, warm_up_seconds=3.0),
)
QUICK = Plan(
    admission=AdmissionPlan(rounds=1, seconds=1.5, warm_up_seconds=0.5, connections=256),
    pairs=AdmissionPlan(rounds=1, seconds=1.5, warm_up_seconds=0.5, connections=256),
    road=LoadWindow(seconds=4.0, warm_up_seconds=1.0),
    settle_rounds=1,
    settle_batched=5_000,
    settle_single=100,
)
METHOD = (
    "Everything in one run on one machine; the load comes from an epoll loop of our own, one request in flight on each "
    "of {admission.connections} kept-alive connections, every request by a buyer never seen before, from a network of "
    "its own; any answer but 202 and 503 fails the run, and more than one 503 in a thousand answers.",
    REPEATED,
    "Admission: each server (one worker) is bound to one core, the loader and Valkey to another. "
    "{admission.rounds} rounds of {admission.seconds:g} s a side in turns, every second round backwards, warm-up not "
    "counted; figures are medians, ratios are of this run.",
    "Two gates: the same with two processes, which share that core. A lone ask: the same loader with one connection.",
    "Waits for one replica: the gate with FAIRDROP_REDIS_REPLICAS=1 on a Valkey of its own, whose replica shares the "
    "core with it and the loader, and has every write on disk as well.",
    "Unmarked: the gate without headers for browsers, ids, metrics and traces. No line is written for an ask, so "
    "hiding secrets in lines costs it nothing.",
    "With limits and without: the gate with its defaults, and one that counts no calls by address, for a sale that "
    "counts no units by network; {pairs.rounds} pairs of {pairs.seconds:g} s, the middle of their ratios.",
    "No-op: an ASGI application on granian, the server of before, that reads the body and answers 202. "
    "Plain view: Django over WSGI with the shop's own middleware, doing the same admission with one script call.",
    "Settlement alone: the line is filled by the admission script, then the real settler empties it; one order a "
    "transaction is the same code with a batch of 1.",
    "Whole road: web, 1 settler, Valkey, PostgreSQL and the loader share all cores, nothing is bound. Counted "
    "are orders decided in PostgreSQL within the window; the loader rests while too many are undecided. Afterwards the "
    "sale's audit must find nothing.",
    "Memory: resident, of the largest process, after the flood. Of Redis: what a request takes that waits. About 55 "
    "bytes of it are for its network, which its record names and whose units are counted; here each buyer has a "
    "network of their own, and those who share one need less.",
)
