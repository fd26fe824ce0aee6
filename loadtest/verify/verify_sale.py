"""Checks the public log of a sale of any Fairdrop shop: who stood where, who was decided when, what became of units.

    python verify_sale.py https://shop.example/sales/lantern-drop/ [--keep FOLDER] [--follow] [--ticket FILE]

Needs Python 3.11, `cryptography`, and no other file. It fetches every leaf, checks that they are the tree that the shop
has signed, and replays the sale by the rules below. Exit code: 0 all hold, 1 one is broken, 2 the log could not be read.
docs/checkable-line.md says what each leaf and a ticket means, and what no log can show.
"""  # noqa: E501

from __future__ import annotations

import argparse
import json
import sys
import time
import urllib.request
from base64 import b64decode, urlsafe_b64decode
from collections import Counter, deque
from collections.abc import Callable, Collection, Iterator
from functools import lru_cache, reduce
from hashlib import sha256
from pathlib import Path
from typing import Any

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

WIDTH = 256
PATIENCE_US = 120_000_000
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
# Outcome → the states that it may follow; after it the request has that state, or is paid when it was retaken.
DECIDED = {"held": "waits", "sold_out": "waits", "refused": "waits"}
ENDED = {"left": "waits", "paid": "held", "expired": "held", "cancelled": "held", "retaken": "expired",
         "refunded": "paid expired cancelled"}  # fmt: skip
ON_TICKETS = ("ordinal", "seq", "quantity", "request", "holder", "terms")
Leaf = dict[str, Any]


@lru_cache(maxsize=4096)
def signs(public: bytes, signature: bytes, text: bytes) -> bool:
    """Say whether the owner of a key signed `text`."""
    try:
        Ed25519PublicKey.from_public_bytes(public).verify(signature, text)
    except InvalidSignature:
        return False
    return True


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
        self.voided = Counter[str]()
        # A place is its leaf with its limit, its state, and whether it may be late: it was lost or put back.
        self.places, self.line = dict[str, Leaf](), deque[str]()  # the line: who waits, in its order
        self.standing = list[str]()  # on standby: after all in line, until enough comes back
        self.passed = dict[str, str]()  # who was passed over, until the log says why
        self.live = Counter[str]()  # holder → units held or paid
        self.terms, self.lost, self.restored = dict[int, Leaf](), list[list[int]](), set[str]()
        self.tickets = dict[int, Leaf]()  # ordinal → what a ticket says of a place that was not published yet
        self.size = self.at = self.ordinal = self.seq = self.free = self.held = self.closed_at = 0
        self.is_open = self.is_paused = False

    def expect(self, rule: str, is_true: bool, text: str) -> None:
        if not is_true and rule not in self.off:
            self.faults.setdefault(rule, []).append(f"leaf {self.size}: {text}")

    def add(self, raw: bytes) -> None:
        try:
            leaf = json.loads(raw)
            written = json.dumps(leaf, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()
            is_next = leaf["n"] == self.size and leaf["at"] >= self.at
            self.expect("format", written == raw and is_next, "not written as agreed, out of its order, or back-dated")
            self.at = leaf["at"]
            self.expect("life", self.is_open or leaf["kind"] == "opened", "before the sale was opened")
            self.counts[leaf["kind"]] += 1
            getattr(self, f"on_{leaf['kind']}")(leaf)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
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
        self.on_act({"act": "open", **leaf})

    def on_admitted(self, leaf: Leaf) -> None:
        name, ordinal, came_back = leaf["request"], leaf["ordinal"], leaf["request"] in self.restored
        due = self.ordinal + 1
        for first, last in self.lost:
            due = last + 1 if first <= due <= last else due
        if not (came_back and self.is_lost(ordinal)):
            self.expect("admitted", ordinal == due, f"place {ordinal} follows place {self.ordinal}")
            self.ordinal = max(self.ordinal, ordinal)
        self.expect("admitted", came_back or leaf["seq"] > self.seq, f"seq {leaf['seq']} is not above {self.seq}")
        self.seq = max(self.seq, leaf["seq"])
        self.expect("terms", leaf["terms"] in self.terms, f"under version {leaf['terms']}, which was not published")
        said = self.tickets.pop(ordinal, leaf)
        is_as_said = all(said[each] == leaf[each] for each in ON_TICKETS)
        self.expect("ticket", is_as_said, f"place {ordinal}, of {said['request']} by its ticket, is given to {name}")
        known = self.places.get(name)  # after a loss the same request may ask again
        self.expect("admitted", known is None or bool(self.lost), f"{name} is admitted twice")
        if known is None or known["state"] == "waits":
            limit = self.terms.get(leaf["terms"], {"limit": 0})["limit"]
            self.places[name] = {"standby": False, **leaf, "limit": limit, "is_late": came_back, "state": "waits"}
            (self.standing if leaf.get("standby") else [] if came_back else self.line).append(name)

    def is_lost(self, ordinal: int) -> bool:
        return any(first <= ordinal <= last for first, last in [[0, 0], *self.lost])

    def on_recovered(self, leaf: Leaf) -> None:
        for first, last in leaf["lost"]:
            self.expect("admitted", self.ordinal < first <= last, f"{first} to {last} are declared lost")
            self.lost.append([first, last])
        self.restored |= {*leaf["restored"]}
        # After a loss all who wait may be lost, and may come back late.
        for name in (*leaf["restored"], *(self.line if leaf["lost"] else ())):
            self.on_requeued({"request": name})

    def on_requeued(self, leaf: Leaf) -> None:
        self.passed.pop(leaf["request"], None)
        if leaf["request"] in self.places:
            self.places[leaf["request"]]["is_late"] = True

    def on_stock(self, leaf: Leaf) -> None:
        self.move("", leaf["change"])

    def move(self, holder: str, units: int) -> None:
        """Change the free units by those that a holder gives back (or takes, when negative)."""
        self.free += units
        self.live[holder] -= units
        self.expect("units", self.free >= 0, f"{-self.free} units were not free")

    def on_decided(self, leaf: Leaf) -> None:
        """Check a decision, or what ended a hold or an order."""
        name, outcome, reason = leaf["request"], leaf["outcome"], leaf.get("reason", "")
        place, is_decided = self.places.get(name, {"state": "unknown"}), leaf["kind"] == "decided"
        if place["state"] not in (DECIDED if is_decided else ENDED)[outcome].split():
            self.expect("life", False, f"{name} is {leaf['kind']} as {outcome}, and was {place['state']}")
            return
        if is_decided and not place["is_late"] and (outcome != "refused" or reason == "limit_reached"):
            self.check_turn(name, place, outcome)
        self.passed.pop(name, None)
        takes, gives = outcome in ("held", "retaken"), outcome in ("expired", "cancelled") or place["state"] == "paid"
        quantity, holder = place["quantity"], place["holder"]
        back = quantity * (gives - takes)
        told = back if is_decided else leaf["units"]
        self.expect("units", told == back, f"{name} gave back {told} and not {back} units")
        may_come = 0 if self.closed_at else self.held
        self.expect("sold_out", outcome != "sold_out" or quantity > self.free + may_come, f"{self.free} were free")
        is_above = self.live[holder] + quantity > place["limit"]
        self.expect("limit", not (takes and is_above), f"{holder} gets more than {place['limit']}")
        self.expect("limit", is_above or reason != "limit_reached", f"{name} was refused below {place['limit']}")
        self.held += quantity * ((outcome == "held") - (place["state"] == "held"))
        self.move(holder, back)
        place["state"] = "paid" if outcome == "retaken" else outcome

    on_ended = on_decided

    def check_turn(self, name: str, place: Leaf, outcome: str) -> None:
        """Find out whether anybody ahead is passed over by a decision; why, the log may say later."""
        while self.line and (self.places[self.line[0]]["state"] != "waits" or self.places[self.line[0]]["is_late"]):
            self.line.popleft()
        if self.line and self.line[0] != name:
            self.passed.setdefault(self.line[0], f"leaf {self.size}: {name} was decided before {self.line[0]}")
        self.expect("order", name not in self.passed, f"{name} was passed over before")
        if place["standby"] and outcome == "held":
            before = [self.places[each] for each in self.standing[: self.standing.index(name)]]
            first = [each["quantity"] for each in before if each["state"] == "waits" and not each["is_late"]]
            self.expect("order", min(first, default=1001) > place["quantity"], f"{name} was not first on standby")
        self.expect("pause", not self.is_paused or self.closed_at > 0, f"{name} was decided")

    def on_act(self, leaf: Leaf) -> None:
        if "terms" in leaf:
            known = self.terms.setdefault(leaf["terms"]["version"], leaf["terms"])
            self.expect("terms", known == leaf["terms"], f"version {known['version']} of the terms has changed")
        if leaf["act"] == "void_order":
            self.voided[leaf["reason"]] += 1
        self.is_paused = {"pause": True, "resume": False}.get(leaf["act"], self.is_paused)

    def on_closed(self, leaf: Leaf) -> None:
        self.expect("life", not self.closed_at, "closed twice")
        self.closed_at = leaf["at"]

    def finish(self, now_us: int) -> None:
        """Judge what only the end shows."""
        if self.passed and "order" not in self.off:
            self.faults.setdefault("order", []).extend(self.passed.values())
        if self.closed_at and now_us - self.closed_at > PATIENCE_US:
            waits = [name for name, each in self.places.items() if each["state"] == "waits" and not each["is_late"]]
            self.expect("answered", not waits, f"{len(waits)} had no answer, the first {waits[:1]}")
        for ordinal, said in self.tickets.items():
            may_come = now_us - said["seq"] < PATIENCE_US or self.is_lost(ordinal)
            self.expect("ticket", may_come, f"place {ordinal} of {said['request']} is not in the log")


class Verifier:
    """One log. get: fetches a path of the shop; kept: root by size, of checkpoints that were seen before."""

    def __init__(self, get: Callable[[str], bytes], slug: str, *, off: Collection[str] = ()) -> None:
        self.get, self.slug, self.replay, self.origin, self.note = get, slug, Replay(off), "", ""
        self.log, self.keys, self.kept = f"/api/v1/sales/{slug}/log", dict[str, bytes](), dict[int, bytes]()

    def read_keys(self) -> None:
        found = json.loads(self.get("/.well-known/fairdrop-keys"))
        self.keys = {each["key"]: urlsafe_b64decode(each["public"] + "=") for each in found}

    def read_note(self, note: str, *, rule: str) -> tuple[int, bytes]:
        """Check who signed a checkpoint (C2SP signed-note, tlog-checkpoint); return its size and root."""
        text, _, lines = note.partition("\n\n")
        origin, size, root = text.split("\n")
        ids = {sha256(origin.encode() + b"\n\1" + key).digest()[:4]: key for key in self.keys.values()}
        signed = [b64decode(line.split(" ")[2]) for line in lines.splitlines() if line.startswith(f"— {origin} ")]
        is_signed = any(raw[:4] in ids and signs(ids[raw[:4]], raw[4:], f"{text}\n".encode()) for raw in signed)
        is_own = origin.endswith(f"/sales/{self.slug}") and self.origin in ("", origin)
        self.replay.expect(rule, is_own and is_signed, f"no key of the shop signed a checkpoint of {origin}")
        self.origin = origin
        return int(size), b64decode(root)

    def show(self, ticket: str) -> None:
        """Check the signature and the path of a ticket, and from now on look for its place."""
        try:
            raw, proof = (urlsafe_b64decode(f"{part}==") for part in ticket.removeprefix("fdt2.").split("."))
            said, found = json.loads(raw), json.loads(proof)
            path = [urlsafe_b64decode(f"{each}=") for each in found["path"]]
            text = b"fairdrop-batch-v1\n%b\n%d" % (root_by(path, raw, found["index"], found["size"]), found["size"])
            signature = urlsafe_b64decode(f"{found['sig']}==")
            if found["key"] not in self.keys or not signs(self.keys[found["key"]], signature, text):
                raise ValueError("no key of the shop signed it")
            if said["sale"] != self.slug:
                raise ValueError(f"it is of the sale {said['sale']}")
            said = {each: said[each] for each in ON_TICKETS}
            is_one = self.replay.tickets.setdefault(said["ordinal"], said) == said
            self.replay.expect("ticket", is_one, f"place {said['ordinal']} is on two tickets")
        except (ValueError, LookupError, TypeError, RecursionError) as error:
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
        self.note, replay = self.get(f"{self.log}/checkpoint").decode(), self.replay
        size, root = self.read_note(self.note, rule="signed")
        replay.expect("kept", size >= max([replay.size, *self.kept]), f"the log has {size} leaves, and had more")
        for leaf in self.leaves(replay.size, max(size, replay.size)):
            replay.add(leaf)
            same = replay.size not in self.kept or self.kept[replay.size] == replay.root()
            replay.expect("kept", same, f"the first {replay.size} leaves are not those that were kept")
        replay.expect("tree", size < replay.size or root == replay.root(), "the leaves have another root")
        self.kept.setdefault(size, root)


def run(verifier: Verifier, *, keep: Path | None = None, follow: bool = False, ticket: Path | None = None) -> int:
    """Check once, or again and again; keep the checkpoint of a log in which nothing was found wrong."""
    verifier.read_keys()
    for file in keep.glob("*") if keep else ():
        size, root = verifier.read_note(file.read_text(), rule="kept")
        verifier.replay.expect("kept", verifier.kept.setdefault(size, root) == root, f"two logs of {size} leaves")
    if ticket:
        verifier.show(ticket.read_text().strip())
    verifier.round()
    while follow and not verifier.replay.faults:
        print(f"{time.strftime('%H:%M:%S')} {verifier.replay.size:,} leaves, no fault", flush=True)
        time.sleep(1)
        verifier.round()
    replay = verifier.replay
    replay.finish(time.time_ns() // 1000)
    print(f"{verifier.origin}: {replay.size:,} leaves, {len(replay.places):,} places")
    for rule, sentence in RULES.items():
        found = replay.faults.get(rule, [])
        print(f"  {'✗' if found else '✓'} {sentence}", *found[:3], sep="\n      ")
    if replay.voided:
        voided = ", ".join(f"{count:,} {reason}" for reason, count in sorted(replay.voided.items()))
        print(f"  ! voided by the shop before shipping: {voided}")
    lost = sum(last - first + 1 for first, last in replay.lost)
    back = f"{len(replay.restored):,} brought back, {replay.counts['requeued']:,} put back in line"
    print(f"  – declared, and to be believed: {lost:,} places lost or never given, {back}")
    if keep and not replay.faults:
        keep.mkdir(parents=True, exist_ok=True)
        (keep / str(replay.size)).write_text(verifier.note)
    return 1 if replay.faults else 0


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Check the public log of a sale.")
    parser.add_argument("sale", help="address of the sale, as https://shop.example/sales/lantern-drop/")
    parser.add_argument("--keep", type=Path, help="where checkpoints are kept, yours and others', to compare")
    parser.add_argument("--follow", action="store_true", help="go on until a rule is broken, or Ctrl-C")
    parser.add_argument("--ticket", type=Path, help="a file with your ticket, to see that the log has your place")
    options = parser.parse_args(arguments)
    shop, _, slug = options.sale.rstrip("/").rpartition("/sales/")
    keep = options.keep and options.keep / f"{shop.partition('://')[2].replace(':', '_')}_{slug}"

    def get(path: str) -> bytes:
        with urllib.request.urlopen(f"{shop}{path}", timeout=20) as answer:  # noqa: S310
            return bytes(answer.read())

    try:
        return run(Verifier(get, slug), keep=keep, follow=options.follow, ticket=options.ticket)
    except (OSError, ValueError, KeyError, TypeError) as error:
        print(f"The log could not be read: {error!r}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 0


if __name__ == "__main__":
    sys.exit(main())
