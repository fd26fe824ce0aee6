"""Gets passes as a program outside of the shop does: reads the challenge, solves it as ALTCHA does, sends it."""

from __future__ import annotations

import json
from typing import Any

import altcha

from tests.support.http_calls import JSON, Answer, Buyer, Caller


def challenge_of(web: Caller, slug: str, buyer: Buyer) -> dict[str, Any]:
    """Return a challenge for `buyer`."""
    answer = web.get(f"/api/v1/sales/{slug}/challenge", headers=buyer.headers)
    assert answer.status == 200, answer
    found: dict[str, Any] = answer.json()
    return found


def solved(challenge: dict[str, Any]) -> str:
    """Return the payload that solves a challenge."""
    found = altcha.Challenge.from_dict(challenge)
    solution = altcha.solve_challenge(found)
    assert solution is not None
    return altcha.Payload(found, solution).to_base64()


def hand_in(web: Caller, slug: str, buyer: Buyer, body: Any) -> Answer:
    """POST to …/passes what `body` is as JSON, or the text that it is."""
    text = body if isinstance(body, str) else json.dumps(body)
    return web.call("POST", f"/api/v1/sales/{slug}/passes", body=text, headers={**JSON, **buyer.headers})


def earn(web: Caller, slug: str, buyer: Buyer) -> str:
    """Return a pass that `buyer` has worked for."""
    answer = hand_in(web, slug, buyer, {"payload": solved(challenge_of(web, slug, buyer))})
    assert answer.status == 201, answer
    text: str = answer.json()["pass"]
    return text


def press(web: Caller, slug: str, buyer: Buyer, *, text: str = "", key: str = "") -> Answer:
    """Ask for one unit with a pass, '' for none, and an Idempotency-Key, '' for none."""
    more = {**({"Fairdrop-Pass": text} if text else {}), **({"Idempotency-Key": key} if key else {})}
    headers = {**JSON, **buyer.headers, **more}
    return web.call("POST", f"/api/v1/sales/{slug}/requests", body='{"quantity": 1}', headers=headers)
