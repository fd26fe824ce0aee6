"""Makes conversations of ordinary and odd HTTP requests, sends them in odd ways, and reads the answers.
The same seed makes the same bytes. Knows no server.
"""

from __future__ import annotations

import asyncio
import json
import random
import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

# For a whole conversation: byte by byte, it is thousands of turns of an event loop that serves 47 others as well.
ANSWER_SECONDS = 240.0
SLOW_SECONDS = 0.05
AT_ONCE = 48
DELIVERIES = {
    "each after its answer": 30, "glued": 25, "pipelined": 15, "split": 15, "slow": 5, "every byte": 4, "broken off": 6,
}  # fmt: skip
SLUG = b"{slug}"


@dataclass(frozen=True)
class Request:
    """One request as bytes; {slug} and {id:key} stand for what differs between two shops."""

    method: str
    text: bytes


@dataclass(frozen=True)
class Conversation:
    """What one connection sends. cut: how many bytes are sent of a conversation that breaks off."""

    requests: Sequence[Request]
    delivery: str
    seed: int
    buyer: str
    cut: float = 1.0

    @property
    def wanted(self) -> int:
        """How many answers there must be."""
        return len(self.requests) - (self.delivery == "broken off")


@dataclass(frozen=True)
class Answer:
    """One answer, without what differs from one moment to the next."""

    status: int
    headers: dict[str, str]
    body: Any


def conversations(count: int, *, seed: int, buyers: Sequence[tuple[str, str]]) -> list[Conversation]:
    """Return conversations of `count` requests together, each by a buyer (name, token) of its own."""
    lots, found, made = random.Random(seed), [], 0
    for name, token in buyers:
        if made >= count:
            break
        wanted = min(lots.choice((1, 2, 3, 5, 8, 13)), count - made)
        requests = [_request(lots, token, is_last=n == wanted - 1) for n in range(wanted)]
        delivery = lots.choices(list(DELIVERIES), list(DELIVERIES.values()))[0]
        found.append(Conversation(requests, delivery, lots.randrange(1 << 30), name, lots.random()))
        made += wanted
    assert made == count, "more buyers are needed"
    return found


def _request(lots: random.Random, token: str, *, is_last: bool) -> Request:
    method, path, fields, body = lots.choices(KINDS, WEIGHTS)[0](lots, token)
    head = {"Host": "127.0.0.1", **fields}
    if lots.random() < 0.1:
        head |= {"Accept": "*/*", "User-Agent": "odd/1.0", f"X-Odd-{lots.randrange(9)}": "o" * lots.randrange(300)}
    if is_last:
        head["Connection"] = "close"
    elif lots.random() < 0.1:
        head["Connection"] = "keep-alive"
    text = body
    if body or method == "POST":
        if lots.random() < 0.15 and len(body) <= 4096:
            head["Transfer-Encoding"], text = "chunked", _chunked(lots, body)
        else:
            head["Content-Length"] = str(len(body))
        if lots.random() < 0.03 and method == "POST":
            head["Expect"] = "100-continue"
    names = [(_case(lots, name), value) for name, value in head.items()]
    lots.shuffle(names)
    lines = [f"{method} {path} HTTP/1.1", *(f"{name}:{lots.choice(('', ' ', '  '))}{value}" for name, value in names)]
    return Request(method, "\r\n".join(lines).encode() + b"\r\n\r\n" + text)


def _case(lots: random.Random, name: str) -> str:
    return lots.choice((name, name, name.lower(), name.upper()))


def _chunked(lots: random.Random, body: bytes) -> bytes:
    text = b""
    while body:
        size = lots.randrange(1, len(body) + 1)
        text += b"%x%b\r\n%b\r\n" % (size, lots.choice((b"", b"", b";odd=1")), body[:size])
        body = body[size:]
    return text + b"0\r\n\r\n"


def _ask(lots: random.Random, token: str, *, body: bytes | None = None, **fields: str) -> tuple[Any, ...]:
    head = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
    if lots.random() < 0.6:
        head["Idempotency-Key"] = f"key-{lots.randrange(3)}"
    text = json.dumps({"quantity": lots.choice((1, 1, 1, 2))}).encode() if body is None else body
    return "POST", "/api/v1/sales/{slug}/requests", head | {k.replace("_", "-"): v for k, v in fields.items()}, text


def _wrong_body(lots: random.Random, token: str) -> tuple[Any, ...]:
    texts = (b"", b"{", b"[]", b"null", b'{"quantity":0}', b'{"quantity":"1"}', b'{"quantity":1,"x":1}', b"\xff\xfe",
             b'{"quantity":2000}', b'{"quantity":1,"quantity":1}', b'{"quantity":1,"ticket":"x"}',
             b'{"quantity":1,"terms_version":99}', b'{"quantity":1,"standby":1}',
             b'{"quantity":1}' + b" " * 4000)  # fmt: skip
    return _ask(lots, token, body=lots.choice(texts))


def _wrong_head(lots: random.Random, token: str) -> tuple[Any, ...]:
    method, path, head, body = _ask(lots, token)
    head |= lots.choice((
        {"Authorization": "Bearer " + token[:-1]}, {"Authorization": "Basic x"}, {"Content-Type": "text/plain"},
        {"Content-Type": "Application/JSON; charset=utf-8"}, {"Idempotency-Key": "k" * 101},
        {"Origin": "https://elsewhere.example"}, {"Sec-Fetch-Site": "cross-site"}, {"Cookie": "a=b; c"},
    ))  # fmt: skip
    if lots.random() < 0.2:
        del head["Authorization"]
        head["Cookie"] = f"x=y; buyer={token}"
        head |= lots.choice(({}, {"Sec-Fetch-Site": "same-origin"}, {"Origin": "http://127.0.0.1"}))
    return method, path, head, body


def _get(*paths: str) -> Any:
    def make(lots: random.Random, token: str) -> tuple[Any, ...]:
        head = {"Authorization": f"Bearer {token}"} if lots.random() < 0.7 else {}
        return lots.choice(("GET", "GET", "GET", "HEAD")), lots.choice(paths), head, b""

    return make


def _other_method(lots: random.Random, token: str) -> tuple[Any, ...]:
    path = lots.choice(("/api/v1/sales/{slug}/requests", "/api/v1/sales", "/api/v1/requests/{id:key-0}"))
    return lots.choice(("PUT", "DELETE", "PATCH", "OPTIONS")), path, {"Authorization": f"Bearer {token}"}, b""


def _new_buyer(_lots: random.Random, _token: str) -> tuple[Any, ...]:
    return "POST", "/api/v1/buyers", {}, b""


KINDS = [
    _ask, _wrong_body, _wrong_head, _new_buyer, _other_method,
    _get("/api/v1/requests/{id:}", "/api/v1/requests/{id:key-0}", "/api/v1/requests/{id:key-1}"),
    _get("/api/v1/requests/1-x", "/api/v1/requests/", "/api/v1/requests/%31-" + "a" * 22, "/api/v1/sales/no-such-sale"),
    _get("/api/v1/sales/{slug}", "/api/v1/sales/{slug}?x=1", "/api/v1/sales?ended=2", "/healthz", "/api/v1/nothing"),
    _get("/sales/{slug}/", "/", "/sales/{slug}", "/nothing"),
]  # fmt: skip
WEIGHTS = [34, 14, 14, 3, 3, 14, 6, 9, 3]


async def hold_all(found: Sequence[Conversation], *, port: int, words: Any) -> list[list[Answer]]:
    """Hold every conversation with the server at `port`; words: puts in what {slug} and {id:key} stand for."""
    places = asyncio.Semaphore(AT_ONCE)

    async def hold(conversation: Conversation) -> list[Answer]:
        async with places:
            texts = [words(request.text, conversation.buyer) for request in conversation.requests]
            return await asyncio.wait_for(_hold(conversation, texts, port=port), ANSWER_SECONDS)

    return list(await asyncio.gather(*map(hold, found)))


async def _hold(conversation: Conversation, texts: list[bytes], *, port: int) -> list[Answer]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    methods = [request.method for request in conversation.requests]
    answers: list[Answer] = []
    try:
        if conversation.delivery == "each after its answer":
            for method, text in zip(methods, texts, strict=True):
                writer.write(text)
                answers.append(await read_answer(reader, method))
        else:
            sending = asyncio.ensure_future(_send(conversation, texts, writer))
            for method in methods[: conversation.wanted]:
                answers += [await read_answer(reader, method)]
            await sending
        if conversation.delivery != "broken off":
            assert await reader.read() == b"", "more than was asked for"
    except (OSError, EOFError, AssertionError) as error:
        answers.append(Answer(0, {}, repr(error)))  # an end that nobody expects: the other server must end so too
    finally:
        writer.close()
        with suppress(ConnectionError):
            await writer.wait_closed()
    return answers


async def _send(conversation: Conversation, texts: list[bytes], writer: asyncio.StreamWriter) -> None:
    lots = random.Random(conversation.seed)
    for part in _parts(conversation, texts, lots):
        writer.write(part)
        with suppress(ConnectionError):  # an answer may end the connection before everything is sent
            await writer.drain()
        await asyncio.sleep(SLOW_SECONDS if conversation.delivery == "slow" else 0)


def _parts(conversation: Conversation, texts: list[bytes], lots: random.Random) -> list[bytes]:
    whole = b"".join(texts)
    match conversation.delivery:
        case "glued":
            return [whole]
        case "pipelined":
            return texts
        case "every byte":
            return [whole[n : n + 1] for n in range(len(whole))]
        case "broken off":
            return [whole[: len(whole) - 1 - int(conversation.cut * (len(texts[-1]) - 1))]]
    cuts = sorted(lots.sample(range(1, len(whole)), min(7, len(whole) - 1)))
    return [whole[a:b] for a, b in zip([0, *cuts], [*cuts, len(whole)], strict=True)]


async def read_answer(reader: asyncio.StreamReader, method: str) -> Answer:
    """Return the next answer that is not an interim one."""
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    lines = head.rstrip().split("\r\n")
    status = int(lines[0].split()[1])
    if status == 100:
        return await read_answer(reader, method)
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines[1:])}
    body = b""
    if method != "HEAD" and status not in (204, 304):
        if headers.get("transfer-encoding") == "chunked":
            while size := int(await reader.readuntil(b"\r\n"), 16):
                body += (await reader.readexactly(size + 2))[:-2]
            await reader.readexactly(2)
        else:
            body = await reader.readexactly(int(headers["content-length"]))
    return Answer(status, _lasting_headers(headers), _lasting(headers.get("content-type", ""), body))


MATTER = ("content-type", "cache-control", "location", "allow", "vary", "x-frame-options", "connection")
# What a status says of the stock, which each process has looked at in its own moment: None before its first look.
ESTIMATED = {"eta_seconds", "eta_range_seconds", "out_of_reach", "holds_ahead", "next_lapse_at"}
CHANGING = {
    "seq", "position", "ticket", "poll_after_ms", "server_time", "ahead", "eta_seconds", "eta_range_seconds", "buyer",
    "token", "queued", "available", "opens_at", "closes_at", "request_id", "status_url", "events_url", "order_url",
    "sku", "slug", "sale",
}  # fmt: skip


def _lasting_headers(headers: dict[str, str]) -> dict[str, str]:
    kept = {name: headers[name] for name in MATTER if name in headers}
    kept |= {name: "given" for name in ("retry-after", "etag") if name in headers}
    if "set-cookie" in headers:
        kept["set-cookie"] = re.sub(r"=[^;]*;", "=…;", headers["set-cookie"], count=1)
    if "location" in kept:
        kept["location"] = "given"
    return kept


def _lasting(kind: str, body: bytes) -> Any:
    """Return what must be the same at any moment and in any shop."""
    if "json" not in kind or not body:
        return body[-8:]
    value = json.loads(body)
    if isinstance(value, dict):
        told = {name: part for name, part in value.items() if name not in ESTIMATED}
        return {name: part if name not in CHANGING else type(part).__name__ for name, part in told.items()}
    return type(value).__name__
