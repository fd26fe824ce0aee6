"""Checks the public log of a sale of any Fairdrop shop: who stood where, who was decided when, what became of units.

    python verify_sale.py https://shop.example/sales/lantern-drop/ [--keep FOLDER] [--cosign KEYFILE]

Needs Python 3.11, `cryptography`, and no other file. It fetches every leaf, checks that they are the tree that the shop
has signed, and replays the sale by the rules below. Exit code: 0 all hold, 1 one is broken, 2 the log could not be read.
docs/checkable-line.md says what leaves, tickets and cosignatures mean, and what no log can show.
"""  # noqa: E501

import argparse
import json
import re
import sys
import time
import urllib.request
from base64 import b64decode, b64encode, urlsafe_b64decode
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from contextlib import suppress
from datetime import datetime
from functools import lru_cache, reduce
from hashlib import sha256
from http.client import HTTPException
from itertools import takewhile
from pathlib import Path
from typing import Any

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

WIDTH, PATIENCE_US, SKEW_US = 256, 120_000_000, 300_000_000  # clocks may differ by the last
RULES = {
    "signed": "every checkpoint is signed by a key that the shop published",
    "tree": "the leaves are those that the checkpoint signs",
    "kept": "the log has grown from every checkpoint that was kept here, and its keys have not changed",
    "format": "each leaf is numbered, written as agreed, and not older than the one before it",
    "admitted": "places follow each other without a gap that is not declared, and each is given once",
    "terms": "every place was given under terms that were published, and those never change",
    "order": "nobody was decided before somebody who stood ahead of them",
    "life": "each request is decided once, and ends once, as a request can",
    "units": "no unit was given that was not free, and each that came back is counted",
    "sold_out": "nobody was told sold out while their units were free or could come back",
    "limit": "nobody has more than the limit, and nobody was refused below it",
    "pause": "nobody was decided while the sale was paused",
    "answered": "everybody had an answer two minutes after the end of the sale",
    "ticket": "each ticket shown here is signed, and the log gives its place to it alone",
}
Leaf = dict[str, Any]
# Outcome → the states that it may follow; after it the request has that state, or is paid when it was retaken.
DECIDED = dict.fromkeys(("held", "sold_out", "refused"), "waits back late")
ENDED = {"left": "waits back late", "paid": "held", "expired": "held", "cancelled": "held", "retaken": "expired",
         "refunded": "paid expired cancelled"}  # fmt: skip
NOTE = re.compile(r"(?:[^—\n].*\n)+\n(?:— \S+ \S+\n)+")  # a checkpoint: its text, and who signed it
# Reason of a refusal → whether it may come out of turn.
REASONS = {"limit_reached": False, "refused": False, "dead_letter": True, "discarded_by_staff": True}
# Kind → what its fields are like: a text, an object, a list, or a whole number that is not below this one.
TERMS = {"version": 0, "price": "", "currency": "", "limit": 1, "hold_seconds": 0}
ON_TICKETS = {"ordinal": 0, "seq": 0, "quantity": 1, "request": "", "holder": "", "terms": 0}
FIELDS: dict[str, Leaf] = {
    "opened": {"units": 0, "mode": "", "terms": TERMS}, "closed": {},
    "admitted": {**ON_TICKETS, "standby": True}, "requeued": {"request": "", "seq": 0},
    "decided": {"request": "", "outcome": ""}, "ended": {"request": "", "outcome": "", "units": 1 - 2**53},
    "stock": {"change": 1 - 2**53, "reason": ""}, "act": {"act": "", "role": "", "reason": "", "terms": TERMS},
    "recovered": {"lost": [[0, 0]], "restored": [""]},
}  # fmt: skip
MAY_LACK: dict[str, Leaf] = {"admitted": {"standby": True}, "act": {"terms": TERMS}}
PROOF = {"key": "", "index": 0, "size": 1, "path": [""], "sig": ""}


@lru_cache(maxsize=4096)
def signs(public: bytes, signature: bytes, text: bytes) -> bool:
    """Say whether the owner of a key signed `text`."""
    with suppress(InvalidSignature):
        Ed25519PublicKey.from_public_bytes(public).verify(signature, text)
        return True
    return False


def key_id(name: str, public: bytes) -> bytes:
    """Return the id of a key in notes (C2SP signed-note); before the key stands a 1, or a 4 when it cosigns."""
    return sha256(name.encode() + b"\n" + public).digest()[:4]


def cosigned(note: str, at: int) -> bytes:
    """Return what a cosigner signs of a checkpoint, in the second `at` (C2SP tlog-cosignature)."""
    return f"cosignature/v1\ntime {at}\n".encode() + note.partition("\n\n")[0].encode() + b"\n"


def cosign(note: str, file: Path) -> str:
    """Return a checkpoint with one cosignature more. file: has the key, or it is made; its name is the cosigner's."""
    if not file.exists():
        file.touch(0o600, exist_ok=False)
        file.write_text(Ed25519PrivateKey.generate().private_bytes_raw().hex())
    key, at = Ed25519PrivateKey.from_private_bytes(bytes.fromhex(file.read_text())), int(time.time())
    public = b"\4" + key.public_key().public_bytes_raw()
    blob = key_id(file.name, public) + at.to_bytes(8, "big") + key.sign(cosigned(note, at))
    print(f"  ✓ cosigned, as {file.name}+{blob[:4].hex()}+{b64encode(public).decode()}")
    return f"{note}— {file.name} {b64encode(blob).decode()}\n"


def fits(value: Any, shape: Any) -> bool:
    """Say whether a value is like this one: neither 1.0 nor true is a whole number, nor what JavaScript would round."""
    if type(value) is type(shape) is dict:
        return all(key in value and fits(value[key], like) for key, like in shape.items())
    if type(value) is type(shape) is list:
        return len(shape) in (1, len(value)) and all(map(fits, value, shape * len(value)))
    return type(value) is type(shape) and (isinstance(shape, str) or shape <= value < 2**53)


def is_leaf(leaf: Leaf) -> bool:
    """Say whether a leaf has the fields of its kind, and a refusal one of the reasons."""
    shape = {"n": 0, "at": 0, **FIELDS[leaf["kind"]]}
    has_reason = leaf.get("outcome") != "refused" or leaf.get("reason") in [*REASONS]
    return has_reason and fits({**MAY_LACK.get(leaf["kind"], {}), **leaf}, shape)


def node(left: bytes, right: bytes) -> bytes:
    """Return the hash of two hashes (RFC 6962); that of a leaf begins with a 0."""
    return sha256(b"\1" + left + right).digest()


def root_by(path: list[bytes], leaf: bytes, index: int, size: int) -> bytes:
    """Return the root to which the path of a leaf leads in a tree of `size` leaves."""
    if size == 1:
        return sha256(b"\0" + leaf).digest() if index == 0 and not path else b""
    left = 1 << (size - 1).bit_length() - 1
    if index < left:
        return node(root_by(path[:-1], leaf, index, left), path[-1])
    return node(path[-1], root_by(path[:-1], leaf, index - left, size - left))


class Replay:
    """Replays leaves one by one. faults: what was found, by rule. off: rules that are not applied."""

    def __init__(self, off: Collection[str] = ()) -> None:
        self.off, self.faults, self.counts, self.parts = off, dict[str, list[str]](), Counter[str](), list[bytes]()
        # A place is its leaf with its limit and its state: "back" is who waits and was put back, "late" may be lost.
        # Its turn is its number in the line, 0 on standby; passed: one behind it on standby was held before it.
        self.places, self.standing = dict[str, Leaf](), dict[str, Leaf]()  # the last: those on standby
        self.turns = self.furthest = 0  # how many were given, and up to where the line was decided
        self.live = Counter[str]()  # holder → units held or paid
        self.voided, self.refused = Counter[str](), Counter[str]()  # reason → orders, requests
        self.gone = Counter[str]()  # outcome → requests; of those who left: passed, after one behind them was decided
        self.too_late = ""  # the first whose place is from after the end
        self.terms, self.lost, self.restored = dict[int, Leaf](), list[list[int]](), set[str]()
        # Ordinal, or the request of one from before places were counted → what a ticket says of it, who has it.
        self.tickets, self.given = dict[int | str, Leaf](), dict[int | str, str]()
        self.unjudged = dict[str, list[str]]()  # rule → why it is not judged yet
        self.size = self.at = self.ordinal = self.seq = self.free = self.held = self.closed_at = self.ends_at = 0
        self.is_open = self.is_paused = self.is_changed = False

    def expect(self, rule: str, is_true: bool, text: str) -> None:
        if not is_true and rule not in self.off:
            self.faults.setdefault(rule, []).append(f"leaf {self.size}: {text}")

    def add(self, raw: bytes) -> None:
        try:
            leaf = json.loads(raw)
            written = json.dumps(leaf, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()
            if not (written == raw and is_leaf(leaf)) and "format" not in self.off:
                raise ValueError("not written as agreed")
            is_next = leaf["n"] == self.size and leaf["at"] >= self.at
            self.expect("format", is_next, "out of its order, or back-dated")
            self.at = leaf["at"]
            self.expect("life", self.is_open or leaf["kind"] == "opened", "before the sale was opened")
            self.counts[leaf["kind"]] += 1
            getattr(self, f"on_{leaf['kind']}")(leaf)
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            self.expect("format", False, f"cannot be read: {error!r}")
        self.size += 1
        self.parts.append(sha256(b"\0" + raw).digest())  # the roots of the perfect trees over all leaves
        for _ in range((self.size & -self.size).bit_length() - 1):
            self.parts[-2:] = [node(*self.parts[-2:])]

    def root(self) -> bytes:
        return reduce(lambda right, left: node(left, right), reversed(self.parts)) if self.size else sha256().digest()

    def on_opened(self, leaf: Leaf) -> None:
        self.expect("life", not self.is_open, "opened twice")
        self.is_open, self.free = True, leaf["units"]
        self.on_act({**leaf, "act": "open"})

    def on_admitted(self, leaf: Leaf) -> None:
        name, ordinal, came_back = leaf["request"], leaf["ordinal"], leaf["request"] in self.restored
        key, due = ordinal or name, self.ordinal + 1
        for first, last in self.lost:
            due = last + 1 if first <= due <= last else due
        if not (came_back and (not ordinal or self.is_lost(ordinal))):
            self.expect("admitted", ordinal == due, f"place {ordinal} follows place {self.ordinal}")
            self.ordinal = max(self.ordinal, ordinal)
        self.expect("admitted", came_back or leaf["seq"] > self.seq, f"seq {leaf['seq']} is not above {self.seq}")
        self.seq = max(self.seq, leaf["seq"])
        self.expect("admitted", leaf["seq"] <= leaf["at"] + SKEW_US, f"seq {leaf['seq']} is of a time to come")
        if leaf["seq"] > (self.closed_at or leaf["seq"]) + SKEW_US:
            self.too_late = self.too_late or name
        owner = self.given.setdefault(key, name)
        self.expect("admitted", owner == name, f"place {ordinal} is given to {name}, and was to {owner}")
        self.expect("terms", leaf["terms"] in self.terms, f"under version {leaf['terms']}, which was not published")
        said = self.tickets.get(key, leaf)
        is_as_said = all(said[each] == leaf[each] for each in ON_TICKETS)
        self.expect("ticket", is_as_said, f"place {ordinal}, of {said['request']} by its ticket, is given to {name}")
        known = self.places.get(name)  # after a loss the same request may ask again
        self.expect("admitted", known is None or bool(self.lost), f"{name} is admitted twice")
        if known is None or known["state"] in ("waits", "back", "late"):
            self.turns += 1
            limit, turn = self.terms.get(leaf["terms"], {"limit": 0})["limit"], 0 if "standby" in leaf else self.turns
            own = {"limit": limit, "turn": turn, "passed": False, "state": "back" if came_back else "waits"}
            self.places[name] = place = {**leaf, **own}
            self.standing.pop(name, None)  # who asks again after a loss stands by after all others
            self.standing.update({name: place} if "standby" in leaf else {})

    def is_lost(self, ordinal: int) -> bool:
        return any(first <= ordinal <= last for first, last in self.lost)

    def on_recovered(self, leaf: Leaf) -> None:
        for first, last in leaf["lost"]:
            self.expect("admitted", self.ordinal < first <= last, f"{first} to {last} are declared lost")
            self.lost.append([first, last])
        self.restored |= {*leaf["restored"]}
        for name in leaf["restored"]:
            self.on_requeued({"request": name})
        for place in self.places.values() if leaf["lost"] else ():  # all who wait may be lost
            place["state"] = "late" if place["state"] in ("waits", "back") else place["state"]

    def on_requeued(self, leaf: Leaf) -> None:
        if self.state(leaf["request"]) == "waits":
            self.places[leaf["request"]]["state"] = "back"

    def on_stock(self, leaf: Leaf) -> None:
        self.free += leaf["change"]
        self.expect("units", self.free >= 0, f"{-self.free} units were not free")

    def on_decided(self, leaf: Leaf) -> None:
        """Check a decision, or what ended a hold or an order."""
        name, outcome, reason = leaf["request"], leaf["outcome"], leaf.get("reason", "")
        state, is_decided = self.state(name), leaf["kind"] == "decided"
        if state not in (DECIDED if is_decided else ENDED)[outcome].split():
            self.expect("life", False, f"{name} is {leaf['kind']} as {outcome}, and was {state}")
            return
        place = self.places[name]
        self.refused.update([reason] if outcome == "refused" else [])
        self.gone.update([outcome, *["passed"] * (outcome == "left" and self.is_passed(place))])
        if is_decided and state == "waits" and not (outcome == "refused" and REASONS.get(reason)):
            self.check_turn(name, place, outcome)
        self.standing.pop(name, None)
        takes, gives = outcome in ("held", "retaken"), outcome in ("expired", "cancelled") or state == "paid"
        quantity, holder = place["quantity"], place["holder"]
        back = quantity * (gives - takes)
        told = back if is_decided else leaf["units"]
        self.expect("units", told == back, f"{name} gave back {told} and not {back} units")
        is_enough = quantity <= self.free + self.held * (not self.closed_at)
        self.expect("sold_out", outcome != "sold_out" or not is_enough, f"{self.free} were free")
        is_above = self.live[holder] + quantity > place["limit"]
        self.expect("limit", not (takes and is_above), f"{holder} gets more than {place['limit']}")
        self.expect("limit", is_above or reason != "limit_reached", f"{name} was refused below {place['limit']}")
        self.held += quantity * ((outcome == "held") - (state == "held"))
        self.live[holder] -= back
        self.on_stock({"change": back})
        place["state"] = "paid" if outcome == "retaken" else outcome

    on_ended = on_decided

    def state(self, name: str) -> str:
        return str(self.places[name]["state"]) if name in self.places else "unknown"

    def is_passed(self, place: Leaf) -> bool:
        return bool(place["passed"] or 0 < place["turn"] <= self.furthest)

    def check_turn(self, name: str, place: Leaf, outcome: str) -> None:
        """Note who is passed over by a decision: why, the log may say later, or that they have left."""
        self.expect("order", not self.is_passed(place), f"{name} was passed over before")
        self.furthest = max(self.furthest, place["turn"] or self.turns)  # those on standby come after all in line
        for each in takewhile(lambda each: each["ordinal"] < place["ordinal"], self.standing.values()):
            each["passed"] |= outcome == "held" and each["quantity"] <= place["quantity"]
        self.expect("pause", not self.is_paused or self.closed_at > 0, f"{name} was decided")

    def on_act(self, leaf: Leaf) -> None:
        if "terms" in leaf:
            known = self.terms.setdefault(leaf["terms"]["version"], leaf["terms"])
            self.expect("terms", known == leaf["terms"], f"version {known['version']} of the terms has changed")
        self.is_changed |= leaf["act"] == "change" and self.closed_at > 0  # perhaps its end: the sale may go on
        self.voided.update([leaf["reason"]] if leaf["act"] == "void_order" else [])
        self.is_paused = {"pause": True, "resume": False}.get(leaf["act"], self.is_paused)

    def on_closed(self, leaf: Leaf) -> None:
        self.expect("life", not self.closed_at, "closed twice")
        self.closed_at = leaf["at"]

    def finish(self, now_us: int) -> None:
        """Judge what only the end shows."""
        self.expect("life", self.is_open, "the log is empty")
        passed = [name for name, each in self.places.items() if each["state"] == "waits" and self.is_passed(each)]
        self.expect("order", not passed, f"{len(passed)} were passed over, the first {passed[:1]}")
        self.expect("format", self.at <= now_us + SKEW_US, "the last leaf is of a time to come")
        self.expect("admitted", not self.too_late or self.is_changed, f"{self.too_late} came after the end of the sale")
        waits = [name for name in self.places if self.state(name) in ("waits", "back")]
        is_over = 0 < self.closed_at < now_us - PATIENCE_US
        is_hidden = not self.closed_at and 0 < self.ends_at < now_us - PATIENCE_US - SKEW_US
        self.expect("answered", not is_hidden, "by its own address the sale has ended, and the log does not say so")
        self.expect("answered", not (is_over and waits), f"{len(waits)} had no answer, the first {waits[:1]}")
        self.unjudged = {} if is_over else {"answered": ["not judged yet: the sale was not over two minutes ago"]}
        for key, said in [each for each in self.tickets.items() if each[0] not in self.given]:
            is_lost = bool(self.lost) if isinstance(key, str) else self.is_lost(key)
            is_new = now_us - said["seq"] < PATIENCE_US or (isinstance(key, str) and not is_over)
            self.expect("ticket", is_lost or is_new, f"place {key} of {said['request']} is not in the log")
            self.unjudged["ticket"] = [f"your place {key} is {'declared lost' if is_lost else 'not there yet'}"]


class Verifier:
    """One log. get: fetches a path; kept: size → root, as seen before; saw: cosigner → leaves seen last, and when."""

    def __init__(self, get: Callable[[str], bytes], slug: str, *, off: Collection[str] = (), vkeys: str = "") -> None:
        self.get, self.slug, self.replay, self.origin, self.note = get, slug, Replay(off), "", ""
        self.log, self.keys, self.kept = f"/api/v1/sales/{slug}/log", dict[str, bytes](), dict[int, bytes]()
        self.saw, parts = dict[str, tuple[int, int]](), (vkey.split("+", 2) for vkey in vkeys.split())
        self.known = {(name, bytes.fromhex(said)): b64decode(public)[1:] for name, said, public in parts}

    def read_keys(self) -> None:
        found = json.loads(self.get("/.well-known/fairdrop-keys"))
        self.keys = {each["key"]: urlsafe_b64decode(each["public"] + "=") for each in found}

    def read_note(self, note: str, *, rule: str) -> tuple[int, bytes]:
        """Check who signed a checkpoint (C2SP signed-note, tlog-checkpoint); return its size and root."""
        if not NOTE.fullmatch(note):
            raise ValueError(f"this is no checkpoint: {note[:80]!r}")
        text, _, lines = note.partition("\n\n")
        origin, size, root = text.split("\n")
        ids, is_signed = {(origin, key_id(origin, b"\1" + key)): key for key in self.keys.values()}, False
        for _, name, blob in (line.split(" ") for line in lines.splitlines()):
            raw = b64decode(blob)
            if key := ids.get((name, raw[:4])):
                is_signed |= signs(key, raw[4:], f"{text}\n".encode())
            elif key := self.known.get((name, raw[:4])):
                at = int.from_bytes(raw[4:12], "big")
                is_good = at < time.time() + 300 and signs(key, raw[12:], cosigned(note, at))
                self.replay.expect(rule, is_good, f"{name} did not cosign {size} leaves")
                self.saw[name] = max(self.saw.get(name, (0, 0)), (int(size), at * is_good))
        is_own = origin.endswith(f"/sales/{self.slug}") and self.origin in ("", origin)
        self.replay.expect(rule, is_own and is_signed, f"no key of the shop signed a checkpoint of {origin}")
        self.origin = origin
        return int(size), b64decode(root)

    def show(self, ticket: str) -> None:
        """Check the signature and the path of a ticket, and from now on look for its place."""
        try:
            raw, proof = (urlsafe_b64decode(f"{part}==") for part in ticket.removeprefix("fdt2.").split("."))
            said, found = json.loads(raw), json.loads(proof)
            if not (fits(said, {"sale": "", **ON_TICKETS}) and fits(found, PROOF)):
                raise ValueError("its fields are not as agreed")
            path = [urlsafe_b64decode(f"{each}=") for each in found["path"]]
            text = b"fairdrop-batch-v1\n%b\n%d" % (root_by(path, raw, found["index"], found["size"]), found["size"])
            signature = urlsafe_b64decode(f"{found['sig']}==")
            if found["key"] not in self.keys or not signs(self.keys[found["key"]], signature, text):
                raise ValueError("no key of the shop signed it")
            if said["sale"] != self.slug:
                raise ValueError(f"it is of the sale {said['sale']}")
            if said["seq"] > time.time_ns() // 1000 + SKEW_US:
                raise ValueError("it is of a time to come")
            said = {each: said[each] for each in ON_TICKETS}
            is_one = self.replay.tickets.setdefault(said["ordinal"] or said["request"], said) == said
            self.replay.expect("ticket", is_one, f"place {said['ordinal']} is on two tickets")
        except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
            self.replay.expect("ticket", False, f"a ticket is cut short, altered or foreign: {error!r}")

    def leaves(self, begin: int, end: int) -> Iterator[bytes]:
        """Fetch the leaves from `begin` to before `end`: tiles of 256, each leaf after its length in two bytes."""
        for number in range(begin // WIDTH, (end + WIDTH - 1) // WIDTH):
            width = min(end - number * WIDTH, WIDTH)
            *others, last = (f"{int(group):03d}" for group in f"{number:,}".split(","))
            path = "".join(f"x{group}/" for group in others) + last + f".p/{width}" * (width < WIDTH)
            data, at = self.get(f"{self.log}/tile/entries/{path}"), 0
            for index in range(number * WIDTH, number * WIDTH + width):
                first = at + 2
                at = first + int.from_bytes(data[at:first], "big")
                if index >= begin:
                    yield data[first:at]

    def round(self) -> None:
        """Fetch what is new and check all of it."""
        note, replay = self.get(f"{self.log}/checkpoint").decode(), self.replay
        size, root = self.read_note(note, rule="signed")
        replay.expect("kept", size >= max([replay.size, *self.kept]), f"the log has {size} leaves, and had more")
        for leaf in self.leaves(replay.size, max(size, replay.size)):
            replay.add(leaf)
            same = replay.size not in self.kept or self.kept[replay.size] == replay.root()
            replay.expect("kept", same, f"the first {replay.size} leaves are not those that were kept")
        replay.expect("tree", size < replay.size or root == replay.root(), "the leaves have another root")
        self.note, self.kept[size] = note, self.kept.get(size, root)  # all of it was checked

    def finish(self, now_us: int) -> None:
        """Judge what only the end shows; when the sale ends, the shop says to all who buy. A copy of a log cannot."""
        with suppress(OSError, HTTPException, ValueError, LookupError, TypeError):
            ends = json.loads(self.get(self.log.removesuffix("/log")))["closes_at"]
            self.replay.ends_at = int(datetime.fromisoformat(ends).timestamp() * 1_000_000)
        self.replay.finish(now_us)


def run(
    verifier: Verifier, *, keep: Path | None = None, follow: bool = False, ticket: Path | None = None,
    cosigner: Path | None = None,
) -> int:  # fmt: skip
    """Check once, or again and again; keep, and cosign, the checkpoint of a log in which nothing was found wrong."""
    verifier.read_keys()
    for text in [file.read_text() for file in keep.glob("*")] if keep else ():
        for note in re.split(r"\n(?=[^—\s]+/sales/)", text.strip()):
            size, root = verifier.read_note(f"{note.strip()}\n", rule="kept")
            verifier.replay.expect("kept", verifier.kept.setdefault(size, root) == root, f"two logs of {size} leaves")
    if ticket:
        verifier.show(ticket.read_text().strip())
    verifier.round()
    with suppress(KeyboardInterrupt):
        while follow and not verifier.replay.faults:
            print(f"{time.strftime('%H:%M:%S')} {verifier.replay.size:,} leaves, no fault", flush=True)
            time.sleep(1)
            verifier.read_keys()  # they may be rotated meanwhile
            verifier.round()
    verifier.finish(time.time_ns() // 1000)
    report(verifier)
    if keep and not verifier.replay.faults:
        keep.mkdir(parents=True, exist_ok=True)
        file = keep / verifier.note.split("\n")[1]
        if cosigner or not file.exists():  # one that was cosigned stays
            file.write_text(cosign(verifier.note, cosigner) if cosigner else verifier.note)
    return 1 if verifier.replay.faults else 0


def report(verifier: Verifier) -> None:
    """Print a sentence for each rule, who has cosigned this log, and what nobody can check."""
    replay = verifier.replay
    print(f"{verifier.origin}: {replay.size:,} leaves, {len(replay.places):,} places")
    for rule, sentence in RULES.items():
        found, why = replay.faults.get(rule, []), replay.unjudged.get(rule, [])
        print(f"  {'✗' if found else '–' if why else '✓'} {sentence}", *(found or why)[:3], sep="\n      ")
    for name, _ in verifier.known:
        size, at = verifier.saw.get(name, (0, 0))
        print(f"  – {name} cosigned {size:,} leaves", time.strftime("until %F %T UTC", time.gmtime(at)) if at else "")
    if verifier.saw:
        print(f"  {'✗ not all who cosigned' if 'kept' in replay.faults else '✓ all who cosigned'} have seen this log")
    print(f"  – refused: {dict(replay.refused) or 'nobody'}")
    passed = f"of these {replay.gone['passed']:,} after somebody behind them was decided"
    print(f"  – left the line: {replay.gone['left']:,}, {passed}; gave up a hold: {replay.gone['cancelled']:,}")
    for key in replay.tickets:
        print(f"  – your place {key}, by the log: {replay.state(replay.given.get(key, ''))}")
    print(f"  – voided by the shop before shipping: {dict(+replay.voided) or 'nothing'}")
    lost = sum(last - first + 1 for first, last in replay.lost)
    back = f"{len(replay.restored):,} brought back, {replay.counts['requeued']:,} put back in line"
    late = [*map(replay.state, replay.places)].count("late")  # they waited at a loss
    print(f"  – declared, and to be believed: {lost:,} places lost or never given, {back}; {late:,} not answered")


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Check the public log of a sale.")
    parser.add_argument("sale", help="address of the sale, as https://shop.example/sales/lantern-drop/")
    parser.add_argument("--keep", type=Path, help="where checkpoints are kept, yours and others', to compare")
    parser.add_argument("--follow", action="store_true", help="go on until a rule is broken, or Ctrl-C")
    parser.add_argument("--ticket", type=Path, help="a file with your ticket, to see that the log has your place")
    parser.add_argument("--cosign", type=Path, help="a file with your key, to sign the checkpoint that is kept")
    parser.add_argument("--known", type=Path, help="a file with vkeys of others, to see what they have cosigned")
    options = parser.parse_args(arguments)
    if options.cosign and (not options.keep or re.search(r"[\s+—]", options.cosign.name)):
        parser.error("--cosign needs --keep, what the log must have grown from, and a file name without space, + and —")
    shop, _, slug = options.sale.rstrip("/").rpartition("/sales/")
    keep = options.keep and options.keep / f"{shop.partition('://')[2].replace(':', '_')}_{slug}"
    try:
        vkeys = options.known.read_text() if options.known else ""
        verifier = Verifier(lambda path: urllib.request.urlopen(shop + path, timeout=20).read(), slug, vkeys=vkeys)  # noqa: S310
        return run(verifier, keep=keep, follow=options.follow, ticket=options.ticket, cosigner=options.cosign)
    except (OSError, HTTPException, ValueError, LookupError, TypeError, KeyboardInterrupt) as error:
        print(f"The log could not be read: {error!r}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
