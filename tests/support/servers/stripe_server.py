"""A stand-in of Stripe's API for tests: sessions, refunds, idempotency keys, signed events. Takes no money.

Every request and every object that it answers or signs is held to the shapes of Stripe's description
(tests/support/stripe_shapes.py); what does not fit is refused, and kept in `faults`. It can lose answers, refuse, or
let something happen before it answers. Never calls anybody: a test carries the events to the shop.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from secrets import token_hex
from typing import Any
from urllib.parse import urlsplit

import stripe

from tests.support.stripe_shapes import definitions, example, faults_of, read_form

API_KEY, WEBHOOK_SECRET = "sk_test_of_these_tests", "whsec_of_these_tests"
MIN_SECONDS, MAX_SECONDS = 30 * 60, 24 * 3600
Object = dict[str, Any]


class Refused(Exception):
    """An answer with an error, as Stripe words it."""

    def __init__(self, status: int, kind: str, message: str, *, code: str | None = None) -> None:
        self.status = status
        self.error = {"type": kind, "message": message} | ({"code": code} if code else {})
        super().__init__(message)


class StripeServer(ThreadingHTTPServer):
    """calls: what was asked, in its order, with the idempotency key; lose: how many answers get lost from now on."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Conversation)
        self.sessions: dict[str, Object] = {}
        self.intents: dict[str, Object] = {}
        self.charges: dict[str, Object] = {}
        self.refunds: dict[str, Object] = {}
        self.calls: list[tuple[str, str]] = []
        self.faults: list[str] = []
        self.titles: list[str] = []  # of each session that was made
        self.lose = 0
        self.refuse: Refused | None = None
        self.refund_status = "succeeded"
        self.page_size = 100  # of a list, whatever is asked for
        self.before_answer: Callable[[str], object] = lambda _: None
        # Where browsers are sent; a test that opens one answers there itself.
        self.pages = self.url
        self._replies: dict[str, tuple[Object, Object]] = {}
        self.failures: dict[str, Refused] = {}
        self._turn = threading.Lock()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def forget_keys(self) -> None:
        """Forget all idempotency keys, as Stripe does after a day."""
        self._replies.clear()
        self.failures.clear()

    def called(self, name: str) -> int:
        """Return how many calls there were of this method and path, such as "POST /v1/refunds"."""
        return sum(each == name for each, _ in self.calls)

    def answer(self, name: str, path: list[str], wish: Object, *, key: str) -> Object:
        """Return the object that a call gets. Raises Refused."""
        with self._turn:
            self.calls.append((name, key))
            if key in self.failures:
                raise self.failures[key]
            if self.refuse:
                if key and self.refuse.status >= 500:  # kept like any other first answer to a key
                    self.failures[key] = self.refuse
                raise self.refuse
            if faults := faults_of(name, wish):
                raise Refused(400, "invalid_request_error", "; ".join(faults))
            if key and key in self._replies:
                before, made = self._replies[key]
                if before != wish:
                    raise Refused(400, "idempotency_error", "Keys for idempotent requests can only be used as before.")
                return made
            made = ACTS[name](self, path, wish)
            if key:
                self._replies[key] = (wish, json.loads(json.dumps(made)))
            return made

    def create_session(self, _: list[str], wish: Object) -> Object:
        (item,) = wish["line_items"]
        price, now = item["price_data"], int(time.time())
        self.titles.append(price["product_data"]["name"])
        ends = int(wish["expires_at"])
        if not MIN_SECONDS <= ends - now <= MAX_SECONDS:
            raise Refused(400, "invalid_request_error", "expires_at must be 30 minutes to 24 hours away.")
        total = int(price["unit_amount"]) * int(item["quantity"])
        session = example(
            "checkout.session",
            id=f"cs_test_{token_hex(29)}",
            **{name: wish[name] for name in ("mode", "success_url", "cancel_url", "client_reference_id", "metadata")},
            payment_method_types=wish["allowed_payment_method_types"],
            adaptive_pricing={"enabled": wish["adaptive_pricing"]["enabled"] == "true"},
            created=now,
            expires_at=ends,
            status="open",
            payment_status="unpaid",
            amount_subtotal=total,
            amount_total=total,
            currency=price["currency"],
            payment_intent=None,
        )
        session["url"] = f"{self.pages}/c/pay/{session['id']}"
        session["custom_text"] = dict.fromkeys(("after_submit", "shipping_address", "submit"))
        self.sessions[session["id"]] = session
        return session

    def find_session(self, path: list[str], wish: Object) -> Object:
        session = self.sessions.get(path[3])
        if session is None:
            raise Refused(404, "invalid_request_error", "No such checkout.session", code="resource_missing")
        return self._with_charge(session) if wish.get("expand") == ["payment_intent.latest_charge"] else session

    def list_sessions(self, _: list[str], wish: Object) -> Object:
        """Return a page, the newest first."""
        found = [each for each in self.sessions.values() if each["created"] >= int(wish["created"]["gte"])][::-1]
        names = [each["id"] for each in found]
        start = names.index(wish["starting_after"]) + 1 if "starting_after" in wish else 0
        end = start + min(int(wish["limit"]), self.page_size)
        page = found[start:end]
        if wish.get("expand") == ["data.payment_intent.latest_charge"]:
            page = [self._with_charge(each) for each in page]
        return {"object": "list", "url": "/v1/checkout/sessions", "has_more": end < len(found), "data": page}

    def _with_charge(self, session: Object) -> Object:
        intent = self.intents.get(session["payment_intent"])
        if intent is None:
            return session
        return session | {"payment_intent": intent | {"latest_charge": self.charges[intent["latest_charge"]]}}

    def expire_session(self, path: list[str], wish: Object) -> Object:
        session = self.find_session(path, {})
        if session["status"] != "open":
            raise Refused(400, "invalid_request_error", "Only open Checkout Sessions can be expired.")
        session.update(status="expired", url=None)
        return session

    def create_refund(self, _: list[str], wish: Object) -> Object:
        charge = self.charges[self.intents[wish["payment_intent"]]["latest_charge"]]
        if charge["disputed"]:
            raise Refused(400, "invalid_request_error", "This charge has been disputed.", code="charge_disputed")
        if charge["refunded"]:
            raise Refused(
                400, "invalid_request_error", "Charge has already been refunded.", code="charge_already_refunded"
            )
        left = charge["amount"] - charge["amount_refunded"]
        if self.refund_status == "succeeded":
            charge.update(amount_refunded=charge["amount"], refunded=True)
        refund = example(
            "refund", id=f"re_{token_hex(12)}", amount=left, currency=charge["currency"], created=int(time.time())
        )
        refund |= {"status": self.refund_status, "charge": charge["id"], "payment_intent": wish["payment_intent"]}
        refund["metadata"] = wish.get("metadata", {})
        self.refunds[refund["id"]] = refund
        return refund

    def list_refunds(self, _: list[str], wish: Object) -> Object:
        """Return all at once, the newest first."""
        found = [each for each in self.refunds.values() if each["created"] >= int(wish["created"]["gte"])][::-1]
        if wish.get("expand") == ["data.charge"]:
            found = [each | {"charge": self.charges[each["charge"]]} for each in found]
        return {"object": "list", "url": "/v1/refunds", "has_more": False, "data": found}

    def session_of(self, reference: str) -> Object:
        """Return the one session of a payment of the shop's."""
        (session,) = [each for each in self.sessions.values() if each["client_reference_id"] == reference]
        return session

    def pay(self, reference: str) -> Object:
        """Let the buyer pay on the page; return the event. Fails when the page is over."""
        session = self.session_of(reference)
        assert session["status"] == "open", session["status"]
        known = {name: session[name] for name in ("currency", "metadata")} | {"created": int(time.time())}
        total = session["amount_total"]
        charge = example("charge", id=f"ch_{token_hex(12)}", amount=total, amount_captured=total, **known)
        charge |= {"captured": True, "paid": True, "status": "succeeded"}
        intent = example("payment_intent", id=f"pi_{token_hex(12)}", amount=total, amount_received=total, **known)
        intent |= {"status": "succeeded", "latest_charge": charge["id"], "payment_method_types": ["card"]}
        charge["payment_intent"] = intent["id"]
        self.charges[charge["id"]], self.intents[intent["id"]] = charge, intent
        session.update(status="complete", payment_status="paid", payment_intent=intent["id"], url=None)
        return self.event("checkout.session.completed", session)

    def decline(self, reference: str, *, risk_level: str = "normal") -> Object:
        """Let the buyer try a card that is declined; return the event. The page stays open."""
        session = self.session_of(reference)
        known = {name: session[name] for name in ("currency", "metadata")} | {"created": int(time.time())}
        charge = example("charge", id=f"ch_{token_hex(12)}", amount=session["amount_total"], amount_captured=0, **known)
        charge |= {"captured": False, "paid": False, "status": "failed", "failure_code": "card_declined"}
        charge["outcome"] = {"type": "issuer_declined", "risk_level": risk_level}
        return self.event("charge.failed", charge)

    def give_back(self, reference: str, *, units: int | None = None) -> Object:
        """Let the shop's owner give money back in Stripe's own pages; return the event. units: all by default."""
        charge = self.charges[self.intents[self.session_of(reference)["payment_intent"]]["latest_charge"]]
        charge["amount_refunded"] = charge["amount"] if units is None else charge["amount_refunded"] + units
        charge["refunded"] = charge["amount_refunded"] == charge["amount"]
        return self.event("charge.refunded", charge)

    def fail_refund(self, reference: str) -> Object:
        """Let the buyer's bank not take a refund that was made; return the event."""
        return self.event("refund.failed", self._take_back(reference, status="failed"))

    def cancel_refund(self, reference: str) -> Object:
        """Let the shop's owner cancel a refund in Stripe's own pages; return the event."""
        return self.event("refund.updated", self._take_back(reference, status="canceled"), before={"status": "pending"})

    def _take_back(self, reference: str, *, status: str) -> Object:
        (refund,) = [each for each in self.refunds.values() if reference in each["metadata"].values()]
        self.charges[refund["charge"]].update(amount_refunded=0, refunded=False)
        refund["status"] = status
        return refund

    def event(self, kind: str, what: Object, *, before: Object | None = None) -> Object:
        """Return an event about an object as it is now. before: what this change replaced, of an update."""
        event = example(
            "event", id=f"evt_{token_hex(12)}", type=kind, created=int(time.time()), api_version=stripe.api_version
        )
        event |= {"data": {"object": json.loads(json.dumps(what))}, "request": {"id": None, "idempotency_key": None}}
        event["data"] |= {"previous_attributes": before} if before else {}
        self.faults += faults_of("event", event) + faults_of(what["object"], what)
        return event


ACTS: dict[str, Callable[[StripeServer, list[str], Object], Object]] = {
    "POST /v1/checkout/sessions": StripeServer.create_session,
    "GET /v1/checkout/sessions": StripeServer.list_sessions,
    "GET /v1/checkout/sessions/*": StripeServer.find_session,
    "POST /v1/checkout/sessions/*/expire": StripeServer.expire_session,
    "POST /v1/refunds": StripeServer.create_refund,
    "GET /v1/refunds": StripeServer.list_refunds,
}


def signed(event: Object, *, secret: str = WEBHOOK_SECRET, moment: int | None = None) -> tuple[dict[str, str], bytes]:
    """Return an event as Stripe sends it: headers and body. moment: when it was signed, Unix seconds; default: now."""
    body = json.dumps(event, indent=2)
    signature = stripe.WebhookSignature.generate_signature_header(body, secret, moment)
    return {"Stripe-Signature": signature, "Content-Type": "application/json; charset=utf-8"}, body.encode()


class Conversation(BaseHTTPRequestHandler):
    """One call on a connection of its own."""

    timeout = 30
    server: StripeServer

    def do_GET(self) -> None:
        self.serve(urlsplit(self.path).query)

    def do_POST(self) -> None:
        self.serve(self.rfile.read(int(self.headers.get("Content-Length") or 0)).decode())

    def serve(self, form: str) -> None:
        path = urlsplit(self.path).path.strip("/").split("/")
        named = [*path[:3], "*", *path[4:]] if len(path) > 3 else path
        name = f"{self.command} /{'/'.join(named)}"
        status, answer = 200, {}
        try:
            if self.headers.get("Authorization") != f"Bearer {API_KEY}":
                raise Refused(401, "invalid_request_error", "Invalid API Key provided")
            if name not in ACTS:
                raise Refused(404, "invalid_request_error", f"Unrecognized request URL: {name}")
            key = self.headers.get("Idempotency-Key", "")
            answer = self.server.answer(name, path, read_form(form), key=key)
            for each in answer["data"] if answer["object"] == "list" else [answer]:
                self.server.faults += faults_of(each["object"], each)
        except Refused as refused:
            status, answer = refused.status, {"error": refused.error}
            self.server.faults += faults_of("error", refused.error)
        self.server.before_answer(name)
        if self.server.lose:
            self.server.lose -= 1
            return
        self.send(status, json.dumps(answer).encode())

    def send(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Request-Id", f"req_{token_hex(7)}")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Keep silent."""


@contextmanager
def stripe_server() -> Iterator[StripeServer]:
    """Run a stand-in until the end of the block; fail when an object of its own had not the shape that it must have."""
    definitions()  # now, not in the first answer
    with StripeServer() as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()
    assert server.faults == []
