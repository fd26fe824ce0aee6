"""Checks the public log of a sale of any Fairdrop shop: who stood where, who was decided when, what became of units.

    python verify_sale.py https://shop.example/sales/lantern-drop/ [--keep FOLDER] [--follow]

Needs Python 3.11, `cryptography`, and no other file. It fetches every leaf, checks the signature of the checkpoint, that
the leaves are the tree that was signed, and that the log has grown from each checkpoint that an earlier run has kept in
FOLDER; then it replays the sale by the rules below. Exit code: 0 all rules hold, 1 one is broken, 2 the log could not be
read. docs/checkable-line.md says what each leaf means, and what no log can show.
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
from contextlib import suppress
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

WIDTH = 256
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
}
# Outcome → the states that it may follow, and the state after it.
ENDS = {"paid": ("held", "paid"), "expired": ("held", "expired"), "cancelled": ("held", "cancelled"),
        "left": ("waits", "left"), "retaken": ("expired", "paid"),
        "refunded": ("paid expired cancelled", "refunded")}  # fmt: skip
Leaf = dict[str, Any]
Get = Callable[[str], bytes]


@dataclass(slots=True)
class Place:
    """One admitted request. may_be_late: it was lost or put back, so later ones may be decided before it."""

    holder: str
    quantity: int
    limit: int
    may_be_late: bool
    standby: bool  # after all in line, until enough comes back for it
    state: str = "waits"


class Replay:
    """Replays leaves one by one. faults: what was found, by rule. off: rules that are not applied."""

    def __init__(self, off: Collection[str] = ()) -> None:
        self.off, self.faults, self.counts = off, dict[str, list[str]](), Counter[str]()
        self.places, self.line = dict[str, Place](), deque[str]()  # the line: who waits, in its order
        self.standing = list[str]()  # those on standby
        self.passed = dict[str, str]()  # who was passed over, until the log says why
        self.live = Counter[str]()  # holder → units held or paid
        self.terms, self.lost, self.restored = dict[int, Leaf](), list[list[int]](), set[str]()
        self.size = self.at = self.ordinal = self.seq = self.free = self.held = self.closed_at = 0
        self.is_open = self.is_paused = False

    def expect(self, rule: str, is_true: bool, text: str) -> None:
        if not is_true and rule not in self.off:
            self.faults.setdefault(rule, []).append(f"leaf {self.size}: {text}")

    def add(self, raw: bytes) -> None:
        try:
            leaf = json.loads(raw)
            written = json.dumps(leaf, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()
            self.expect("format", written == raw, "not written as agreed")
            self.expect("format", leaf["n"] == self.size and leaf["at"] >= self.at, "out of its order, or back-dated")
            self.at = leaf["at"]
            self.expect("life", self.is_open or leaf["kind"] == "opened", "before the sale was opened")
            self.counts[leaf["kind"]] += 1
            getattr(self, f"on_{leaf['kind']}")(leaf)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            self.expect("format", False, f"cannot be read: {error!r}")
        self.size += 1

    def on_opened(self, leaf: Leaf) -> None:
        self.expect("life", not self.is_open, "opened twice")
        self.is_open, self.free = True, leaf["units"]
        self.on_act({"act": "open", **leaf})

    def on_admitted(self, leaf: Leaf) -> None:
        name, ordinal, came_back = leaf["request"], leaf["ordinal"], leaf["request"] in self.restored
        due = self.ordinal + 1
        for first, last in self.lost:
            due = last + 1 if first <= due <= last else due
        if not (came_back and any(first <= ordinal <= last for first, last in [[0, 0], *self.lost])):
            self.expect("admitted", ordinal == due, f"place {ordinal} follows place {self.ordinal}")
            self.ordinal = max(self.ordinal, ordinal)
        self.expect("admitted", came_back or leaf["seq"] > self.seq, f"seq {leaf['seq']} is not above {self.seq}")
        self.seq = max(self.seq, leaf["seq"])
        self.expect("terms", leaf["terms"] in self.terms, f"under version {leaf['terms']}, which was not published")
        known = self.places.get(name)  # after a loss the same request may ask again
        self.expect("admitted", known is None or bool(self.lost), f"{name} is admitted twice")
        if known is None or known.state == "waits":
            limit = self.terms.get(leaf["terms"], {"limit": 0})["limit"]
            place = Place(leaf["holder"], leaf["quantity"], limit, came_back, leaf.get("standby", False))
            self.places[name] = place
            (self.standing if place.standby else [] if came_back else self.line).append(name)

    def on_recovered(self, leaf: Leaf) -> None:
        for first, last in leaf["lost"]:
            self.expect("admitted", self.ordinal < first <= last, f"{first} to {last} are declared lost")
            self.lost.append([first, last])
        self.restored |= {*leaf["restored"]}
        # After a loss all who wait may be lost, and may come back late.
        self.come_late([*leaf["restored"], *(self.line if leaf["lost"] else ())])

    def on_requeued(self, leaf: Leaf) -> None:
        self.come_late([leaf["request"]])

    def come_late(self, names: Collection[str]) -> None:
        for name in names:
            self.passed.pop(name, None)
            if name in self.places:
                self.places[name].may_be_late = True

    def on_stock(self, leaf: Leaf) -> None:
        self.move("", leaf["change"])

    def next_in_line(self) -> str:
        while self.line and (self.places[self.line[0]].state != "waits" or self.places[self.line[0]].may_be_late):
            self.line.popleft()
        return self.line[0] if self.line else ""

    def on_decided(self, leaf: Leaf) -> None:
        name, outcome, reason = leaf["request"], leaf["outcome"], leaf.get("reason", "")
        place = self.places.get(name)
        if place is None or place.state != "waits":
            self.expect("life", False, f"{name} is decided, and did not wait")
            return
        in_turn = not place.may_be_late and not (outcome == "refused" and reason != "limit_reached")
        ahead = self.next_in_line()
        if in_turn and ahead not in ("", name):
            self.passed.setdefault(ahead, f"leaf {self.size}: {name} was decided before {ahead}")
        self.expect("order", not (name in self.passed and in_turn), f"{name} was passed over before")
        if place.standby and in_turn and outcome == "held":
            before = [self.places[each] for each in self.standing[: self.standing.index(name)]]
            first = [each for each in before if (each.state, each.may_be_late) == ("waits", False)]
            smaller = [each for each in first if each.quantity <= place.quantity]
            self.expect("order", not smaller, f"{name} was decided before {len(smaller)} on standby")
        self.passed.pop(name, None)
        self.expect("pause", not (self.is_paused and in_turn) or self.closed_at > 0, f"{name} was decided")
        above = self.live[place.holder] + place.quantity > place.limit
        if outcome == "held":
            self.expect("limit", not above, f"{place.holder} gets more than {place.limit}")
            self.move(place.holder, -place.quantity)
            self.held += place.quantity
        elif outcome == "sold_out":
            may_come = 0 if self.closed_at else self.held
            self.expect("sold_out", place.quantity > self.free + may_come, f"{self.free} were free for {name}")
        else:
            self.expect("life", outcome == "refused", f"decided as {outcome}")
            self.expect("limit", above or reason != "limit_reached", f"{name} was refused below {place.limit}")
        place.state = outcome

    def move(self, holder: str, units: int) -> None:
        """Change the free units by those that a holder gives back (or takes, when negative)."""
        self.free += units
        self.live[holder] -= units
        self.expect("units", self.free >= 0, f"{-self.free} units were not free")

    def on_ended(self, leaf: Leaf) -> None:
        name, outcome, place = leaf["request"], leaf["outcome"], self.places.get(leaf["request"])
        before, after = ENDS[outcome]
        if place is None or place.state not in before.split():
            self.expect("life", False, f"{name} ended as {outcome}, and is {place}")
            return
        gives = outcome in ("expired", "cancelled") or place.state == "paid"
        back = place.quantity * (gives - (outcome == "retaken"))
        self.expect("units", leaf["units"] == back, f"{name} gave back {leaf['units']} and not {back} units")
        self.held -= place.quantity if place.state == "held" else 0
        self.move(place.holder, back)
        over = outcome == "retaken" and self.live[place.holder] > place.limit
        self.expect("limit", not over, f"{place.holder} gets more than {place.limit}")
        place.state = after
        self.passed.pop(name, None)

    def on_act(self, leaf: Leaf) -> None:
        if "terms" in leaf:
            known = self.terms.setdefault(leaf["terms"]["version"], leaf["terms"])
            self.expect("terms", known == leaf["terms"], f"version {known['version']} of the terms has changed")
        self.is_paused = {"pause": True, "resume": False}.get(leaf["act"], self.is_paused)

    def on_closed(self, leaf: Leaf) -> None:
        self.expect("life", not self.closed_at, "closed twice")
        self.closed_at = leaf["at"]

    def finish(self, now_us: int) -> None:
        """Judge what only the end shows."""
        if self.passed and "order" not in self.off:
            self.faults.setdefault("order", []).extend(self.passed.values())
        if self.closed_at and now_us - self.closed_at > 120_000_000:
            waits = [name for name, each in self.places.items() if each.state == "waits" and not each.may_be_late]
            self.expect("answered", not waits, f"{len(waits)} had no answer, the first {waits[:1]}")


class Tree:
    """The root of a growing tree (RFC 6962), by the roots of its perfect parts."""

    def __init__(self) -> None:
        self.size, self.parts = 0, list[bytes]()

    def add(self, leaf: bytes) -> None:
        self.parts.append(sha256(b"\0" + leaf).digest())
        self.size += 1
        for _ in range((self.size & -self.size).bit_length() - 1):
            right = self.parts.pop()
            self.parts.append(sha256(b"\1" + self.parts.pop() + right).digest())

    def root(self) -> bytes:
        root = self.parts[-1] if self.parts else sha256(b"").digest()
        for part in self.parts[-2::-1]:
            root = sha256(b"\1" + part + root).digest()
        return root


class Verifier:
    """One log. get: fetches a path of the shop; kept: root by size, of earlier runs."""

    def __init__(self, get: Get, slug: str, *, off: Collection[str] = ()) -> None:
        self.get, self.slug, self.replay, self.tree = get, slug, Replay(off), Tree()
        self.origin, self.keys, self.kept = "", dict[str, str](), dict[int, bytes]()

    def read_keys(self) -> None:
        found = {each["key"]: each["public"] for each in json.loads(self.get("/.well-known/fairdrop-keys"))}
        for key, public in self.keys.items():
            self.replay.expect("kept", found.get(key) == public, f"the shop's key {key} is not what it was")
        self.keys |= found

    def checkpoint(self) -> tuple[int, bytes]:
        """Fetch the checkpoint and check its signature; return size and root."""
        note = self.get(f"/api/v1/sales/{self.slug}/log/checkpoint").decode()
        text, _, signatures = note.partition("\n\n")
        origin, size, root = text.split("\n")
        self.replay.expect("kept", self.origin in ("", origin), f"the log is that of {origin}, not of {self.origin}")
        self.origin = origin
        is_signed = any(self.is_signed(f"{text}\n".encode(), line) for line in signatures.splitlines())
        is_own = origin.endswith(f"/sales/{self.slug}")
        self.replay.expect("signed", is_signed and is_own, f"no key of the shop signed this, as {origin}")
        return int(size), b64decode(root)

    def is_signed(self, text: bytes, line: str) -> bool:
        dash, name, raw = *line.split(" ")[:2], b64decode(line.rpartition(" ")[2])
        for public in (urlsafe_b64decode(key + "=") for key in self.keys.values()):
            key_id = sha256(name.encode() + b"\n\x01" + public).digest()[:4]
            if (dash, name, key_id) == ("—", self.origin, raw[:4]):
                with suppress(InvalidSignature):
                    Ed25519PublicKey.from_public_bytes(public).verify(raw[4:], text)
                    return True
        return False

    def leaves(self, begin: int, end: int) -> Iterator[bytes]:
        """Fetch the leaves from `begin` to before `end`: tiles of 256, each leaf after its length in two bytes."""
        log = f"/api/v1/sales/{self.slug}/log"
        for number in range(begin // WIDTH, (end + WIDTH - 1) // WIDTH):
            last, *others = [f"{number // 1000**i % 1000:03d}" for i in range((len(str(number)) + 2) // 3)]
            width = min(end - number * WIDTH, WIDTH)
            path = "/".join([*(f"x{each}" for each in reversed(others)), last + f".p/{width}" * (width < WIDTH)])
            data, at = self.get(f"{log}/tile/entries/{path}"), 0
            for index in range(number * WIDTH, number * WIDTH + width):
                first = at + 2
                at = first + int.from_bytes(data[at:first], "big")
                if index >= begin:
                    yield data[first:at]

    def round(self) -> None:
        """Fetch what is new and check all of it."""
        size, root = self.checkpoint()
        longest = max([self.tree.size, *self.kept])
        self.replay.expect("kept", size >= longest, f"the log has {size} leaves, and had {longest}")
        for leaf in self.leaves(self.tree.size, max(size, self.tree.size)):
            self.tree.add(leaf)
            self.replay.add(leaf)
            same = self.kept.get(self.tree.size) in (None, self.tree.root() if self.tree.size in self.kept else None)
            self.replay.expect("kept", same, f"the first {self.tree.size} leaves are not those that were kept")
        is_whole = (self.tree.size, self.tree.root()) == (size, root) or size < self.tree.size
        self.replay.expect("tree", is_whole, "the leaves have another root than the checkpoint")
        self.kept.setdefault(size, root)


def report(verifier: Verifier) -> None:
    """Print a sentence a rule, and what cannot be checked further."""
    replay = verifier.replay
    print(f"{verifier.origin}: {replay.size:,} leaves, {len(replay.places):,} places")
    for rule, sentence in RULES.items():
        found = replay.faults.get(rule, [])
        print(f"  {'✗' if found else '✓'} {sentence}", *found[:3], sep="\n      ")
    lost = sum(last - first + 1 for first, last in replay.lost)
    if lost or replay.restored or replay.counts["requeued"]:
        back = f"{len(replay.restored):,} places brought back, {replay.counts['requeued']:,} put back in line"
        print(f"  ! declared, and to be believed: {lost:,} ordinals lost or never given, {back}")


def run(verifier: Verifier, *, file: Path | None, follow: bool) -> int:
    """Check once, or again and again; keep the checkpoints of a log in which nothing was found wrong."""
    if file and file.exists():
        kept = json.loads(file.read_text())
        verifier.origin, verifier.keys = kept["origin"], kept["keys"]
        verifier.kept = {int(size): bytes.fromhex(root) for size, root in kept["roots"].items()}
    verifier.read_keys()
    verifier.round()
    while follow and not verifier.replay.faults:
        print(f"{time.strftime('%H:%M:%S')} {verifier.tree.size:,} leaves, no fault", flush=True)
        time.sleep(1)
        verifier.round()
    verifier.replay.finish(time.time_ns() // 1000)
    report(verifier)
    if file and not verifier.replay.faults:
        file.parent.mkdir(parents=True, exist_ok=True)
        roots = {str(size): root.hex() for size, root in verifier.kept.items()}
        file.write_text(json.dumps({"origin": verifier.origin, "keys": verifier.keys, "roots": roots}))
    return 1 if verifier.replay.faults else 0


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Check the public log of a sale.")
    parser.add_argument("sale", help="address of the sale, as https://shop.example/sales/lantern-drop/")
    parser.add_argument("--keep", type=Path, help="where checkpoints are kept, to compare the next time")
    parser.add_argument("--follow", action="store_true", help="go on until a rule is broken, or Ctrl-C")
    options = parser.parse_args(arguments)
    parts = urlsplit(options.sale)
    slug = parts.path.rstrip("/").rpartition("/")[2]
    if parts.scheme not in ("http", "https") or not parts.netloc or not slug:
        parser.error("the address of a sale begins with http:// or https:// and ends with its name")

    def get(path: str) -> bytes:
        with urllib.request.urlopen(f"{parts.scheme}://{parts.netloc}{path}", timeout=20) as answer:  # noqa: S310
            return bytes(answer.read())

    name = f"{parts.netloc.replace(':', '_')}_{slug}.json"
    try:
        return run(Verifier(get, slug), file=options.keep and options.keep / name, follow=options.follow)
    except (OSError, ValueError, KeyError, TypeError) as error:
        print(f"The log could not be read: {error!r}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 0


if __name__ == "__main__":
    sys.exit(main())
