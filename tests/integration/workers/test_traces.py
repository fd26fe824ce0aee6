"""One request is one trace through the processes that it meets, for as many requests as are sampled; a collector that
does not answer holds nobody up, and without one nothing is imported.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import pytest
from django.test.utils import override_settings

from inventory.telemetry import traces
from inventory.telemetry.otlp import MAX_QUEUED, ids_of
from shop.orders.requests import ask
from tests.support.crashes.worker_shop import worker_process
from tests.support.http_calls import Buyer, Caller
from tests.support.paying import begin, happen, hear, hold
from tests.support.servers.collector import Collector, Silent, collecting
from tests.support.servers.shop_processes import program_with, web_process
from tests.support.shopkeeping import make_sale
from tests.support.waiting import PATIENCE_SECONDS, wait_until

pytestmark = pytest.mark.usefixtures("shop_database")

BUYERS = 40
# All that a span may say.
SAID = {
    *("fairdrop.request_id", "fairdrop.sku", "fairdrop.answer", "fairdrop.outcome", "db.system.name", "service.name"),
    *("service.instance.id", "telemetry.sdk.name", "telemetry.sdk.language", "telemetry.sdk.version"),
}
# Waits for the collector, which is a thread of the tests, however long it takes.
PATIENT = program_with("""
from inventory.telemetry import otlp, traces
otlp.EXPORT_SECONDS = traces.END_SECONDS = 60
""")
# No test freezes their Redis: one that does not answer waits for its turn on a busy machine.
PATIENT_CLIENTS = {"FAIRDROP_REDIS_TIMEOUT_SECONDS": "30"}
# What a web process has imported when it ends.
NOTING = """
import atexit, json, pathlib, sys
note = pathlib.Path(sys.argv.pop(1))
atexit.register(lambda: note.write_text(json.dumps([name for name in sys.modules if name.startswith("opentelemetry")])))
from workers.__main__ import main
main()
"""


def ask_for_one(web: Caller, slug: str, *, key: str | None = None) -> tuple[str, Buyer]:
    """Buy one unit as a new buyer; return the request's id and the buyer."""
    buyer = web.new_buyer()
    answer = web.ask(slug, buyer, key=key)
    assert answer.status == 202, answer.body
    return answer.json()["request_id"], buyer


def is_decided(web: Caller, request_id: str, buyer: Buyer) -> bool:
    return web.status(request_id, buyer).json()["state"] == "held"


def trace_with(collector: Collector, request_id: str, *names: str) -> dict[str, list]:
    """Return the spans of a request by name, as soon as those named have come."""
    wait_until(
        lambda: set(names) <= collector.trace_of(request_id).keys(),
        what=lambda: f"of {names} there are {sorted(collector.trace_of(request_id))}",
    )
    return collector.trace_of(request_id)


def test_one_press_is_one_trace_from_the_gate_to_the_end_of_its_hold(
    process_environment: dict[str, str], tmp_path: Path, new_sku: Callable[[], str]
) -> None:
    card = make_sale(new_sku(), units=2, hold_seconds=1)
    with collecting() as collector, ExitStack() as running:
        environment = {**process_environment, **PATIENT_CLIENTS, **collector.environment}
        web = running.enter_context(web_process(environment, folder=tmp_path, program=PATIENT))
        for worker in ("settler", "expirer"):
            running.enter_context(worker_process(worker, environment, folder=tmp_path, program=PATIENT))
        wait_until(lambda: web.get(f"/api/v1/sales/{card.slug}").status == 200, what="the sale is shown")
        name, buyer = ask_for_one(web, card.slug, key="one")
        again = web.ask(card.slug, buyer, key="one")
        assert (again.status, again.json()["request_id"]) == (200, name)
        other, _ = ask_for_one(web, card.slug)
        found = trace_with(collector, name, "ask", "admit", "settle", "transaction", "expire")
        wait_until(lambda: len(collector.trace_of(name)["ask"]) == 2, what="both asks came")
        trace_with(collector, other, "ask", "settle", "expire")
    first, second = sorted(collector.trace_of(name)["ask"], key=lambda span: span.began_ns)
    settle, transaction, expire = (found[each][0] for each in ("settle", "transaction", "expire"))
    assert (first.trace_id, first.span_id) == ids_of(name)
    assert first.parent_id == 0
    assert {each.parent_id for each in (second, settle, expire)} == {first.span_id}
    assert transaction.parent_id == settle.span_id
    assert {each.parent_id for each in collector.trace_of(name)["admit"]} == {first.span_id, second.span_id}
    assert [each.service.removeprefix("fairdrop-") for each in (first, settle, transaction, expire)] == [
        *("web", "settler", "settler", "expirer")
    ]
    assert [each.about.get("db.system.name") for each in (found["admit"][0], transaction)] == ["redis", "postgresql"]
    assert (first.about["fairdrop.answer"], second.about["fairdrop.answer"]) == ("admitted", "known")
    assert settle.about["fairdrop.outcome"] == "held"
    assert first.began_ns <= first.ended_ns
    assert settle.began_ns <= transaction.began_ns <= transaction.ended_ns <= settle.ended_ns
    # Nobody else asked, and no span says anything of a person. The expirer ends holds of other tests as well.
    assert {each.about["fairdrop.request_id"] for each in collector.kept if each.name == "ask"} == {name, other}
    assert_says_nothing_of(collector, buyer)


def assert_says_nothing_of(collector: Collector, buyer: Buyer) -> None:
    """Fail when any span says more than it may, or anything that leads to a person."""
    assert collector.kept
    assert {key for span in collector.kept for key in span.about} <= SAID
    sent = b"".join(collector.raw)
    assert b"fairdrop.request_id" in sent  # the control: what they do say is found so
    for text in (buyer.name, buyer.token, "127.0.0.1"):
        assert text.encode() not in sent
    assert not [value for span in collector.kept for value in span.about.values() if "@" in value]


def test_a_payment_and_a_press_without_script_are_in_the_trace_too(
    monkeypatch: pytest.MonkeyPatch, new_sku: Callable[[], str], quiet_notices: None
) -> None:
    card = make_sale(new_sku(), units=2)
    monkeypatch.setattr(traces, "END_SECONDS", PATIENCE_SECONDS)
    with collecting() as collector:
        trace_this_process(monkeypatch, collector.environment)
        name = ask(card, buyer="a-buyer", quantity=1, idempotency_key="page").request_id
        (paid,) = hold(card, buyers=1, named="payer")
        hear(happen(begin(paid), "captured"))
        traces.end()
    (first,) = collector.trace_of(name)["ask"]
    assert (first.parent_id, first.about["fairdrop.answer"]) == (0, "admitted")
    (pay,) = collector.trace_of(paid)["pay"]
    assert pay.about["fairdrop.outcome"] == "paid"
    assert pay.parent_id == ids_of(paid)[1]
    assert {key for span in collector.kept for key in span.about} <= SAID
    assert b"buyer" not in b"".join(collector.raw)


def trace_this_process(monkeypatch: pytest.MonkeyPatch, environment: dict[str, str]) -> None:
    """Send spans of this process from now on."""
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    with override_settings(TRACES_ENDPOINT=environment["OTEL_EXPORTER_OTLP_ENDPOINT"]):
        traces.start("test")


def test_every_process_traces_the_same_part_of_the_requests(
    process_environment: dict[str, str], tmp_path: Path, new_sku: Callable[[], str]
) -> None:
    card = make_sale(new_sku(), units=BUYERS)
    sampler = {"OTEL_TRACES_SAMPLER": "traceidratio", "OTEL_TRACES_SAMPLER_ARG": "0.5"}
    with collecting() as collector, ExitStack() as running:
        environment = {**process_environment, **PATIENT_CLIENTS, **collector.environment, **sampler}
        web = running.enter_context(web_process(environment, folder=tmp_path, program=PATIENT))
        running.enter_context(worker_process("settler", environment, folder=tmp_path, program=PATIENT))
        wait_until(lambda: web.get(f"/api/v1/sales/{card.slug}").status == 200, what="the sale is shown")
        asked = dict(ask_for_one(web, card.slug) for _ in range(BUYERS))
        for name, buyer in asked.items():
            wait_until(lambda name=name, buyer=buyer: is_decided(web, name, buyer), what="all are decided")
        # The half whose ids say so.
        half = {name for name in asked if ids_of(name)[0] & (2**64 - 1) < 2**63}
        assert 0 < len(half) < BUYERS
        for name in half:
            trace_with(collector, name, "ask", "settle")
    # Both processes have ended and sent what they had.
    for span in ("ask", "settle"):
        traced = {each.about["fairdrop.request_id"] for each in collector.kept if each.name == span}
        assert traced & asked.keys() == half  # the settler may decide what another test has left in line


def test_a_collector_that_is_silent_holds_nobody_up(
    process_environment: dict[str, str], tmp_path: Path, new_sku: Callable[[], str]
) -> None:
    card = make_sale(new_sku(), units=BUYERS)
    with Silent() as collector, ExitStack() as running:
        environment = {**process_environment, **PATIENT_CLIENTS, **collector.environment}
        web = running.enter_context(web_process(environment, folder=tmp_path))
        running.enter_context(worker_process("settler", environment, folder=tmp_path))
        wait_until(lambda: web.get(f"/api/v1/sales/{card.slug}").status == 200, what="the sale is shown")
        first, buyer = ask_for_one(web, card.slug)
        wait_until(lambda: is_decided(web, first, buyer), what="the first is decided")
        wait_until(lambda: collector.taken >= 2, what="both processes wait for the collector")  # the control
        asked = dict(ask_for_one(web, card.slug) for _ in range(BUYERS - 1))
        for name, buyer in asked.items():
            wait_until(lambda name=name, buyer=buyer: is_decided(web, name, buyer), what="all are decided")


def test_what_waits_for_a_collector_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    with Silent() as collector:
        trace_this_process(monkeypatch, collector.environment)
        asked = [traces.Asked(f"1-{number}", 0.0, "admitted") for number in range(MAX_QUEUED)]
        traces.note_asks(asked, sent_at=0.0)  # two spans each
        waiting = len(traces._tracer._provider._active_span_processor._span_processors[0]._batch_processor._queue)
        assert MAX_QUEUED // 2 <= waiting <= MAX_QUEUED
        traces.end()


@pytest.mark.parametrize("is_named", [False, True])
def test_without_a_collector_nothing_of_it_is_imported(
    process_environment: dict[str, str], tmp_path: Path, new_sku: Callable[[], str], is_named: bool
) -> None:
    """With one, the control: the same process has imported it, and sent something."""
    card, note = make_sale(new_sku(), units=1), tmp_path / "imported.json"
    with collecting() as collector:
        environment = {**process_environment, **PATIENT_CLIENTS, **(collector.environment if is_named else {})}
        with web_process(environment, folder=tmp_path, program=("-c", NOTING, str(note))) as web:
            wait_until(lambda: web.get(f"/api/v1/sales/{card.slug}").status == 200, what="the sale is shown")
            ask_for_one(web, card.slug)
            if is_named:
                wait_until(lambda: collector.kept, what="it has sent something")
    imported = json.loads(note.read_text())
    assert bool(imported) is is_named
    assert bool(collector.kept) is is_named
