"""The tree, the notes and the addresses of sale logs agree with published vectors and with those in docs. No server."""

from __future__ import annotations

import json
from base64 import b64decode
from typing import Any

import pytest
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from django.test.utils import override_settings

from loadtest.verify import verify_sale
from shop.salelog.notes import Checkpoint, note_key_id, read_note, sign
from shop.salelog.publisher import leaf_text
from shop.salelog.store import bundle_of, leaves_of
from shop.salelog.tree import EMPTY_ROOT, Tree, grow, leaf_hash, node_hash, split
from shop.salelog.views import NUMBER, number_path
from shop.tickets.keys import LogOff, decode, encode, log_keys
from shop.tickets.signing import holder_of
from tests.rules.sources import ROOT

VECTORS: dict[str, Any] = json.loads((ROOT / "docs" / "checkable-line.json").read_text())
RFC, LOG, KEY = VECTORS["rfc6962"], VECTORS["log"], VECTORS["key"]
WITH_KEY = override_settings(SALE_LOG=True, LOG_KEYS=[f"2026-11-01T00:00:00Z={KEY['seed']}"])


def tree_of(leaves: list[bytes], *, steps: int = 1) -> Tree:
    """Return the tree over leaves that were added some at a time."""
    tiles: dict[tuple[int, int], bytes] = {}
    edge: dict[int, bytes] = {}
    for begin in range(0, len(leaves), steps):
        tiles |= grow(edge, size=begin, leaves=leaves[begin : begin + steps])
    return Tree(lambda level, number: tiles[level, number])


def root_by_path(leaf: bytes, *, index: int, size: int, path: list[bytes]) -> bytes:
    """Return the root that a path leads to (RFC 9162, 2.1.3.2)."""
    at, last, root = index, size - 1, leaf_hash(leaf)
    for each in path:
        if at & 1 or at == last:
            root = node_hash(each, root)
            while not at & 1 and at:
                at, last = at >> 1, last >> 1
        else:
            root = node_hash(root, each)
        at, last = at >> 1, last >> 1
    return root if last == 0 else b""


def growth_of(tree: Tree, *, before: int, size: int) -> list[bytes]:
    """Return the proof that a tree has grown from its first `before` leaves (RFC 6962, 2.1.2), from its own hashes."""
    path: list[bytes] = []
    begin, end = 0, size
    while before < end:
        middle = begin + split(end - begin)
        if before <= middle:
            path.append(tree.range_hash(middle, end))
            end = middle
        else:
            path.append(tree.range_hash(begin, middle))
            begin = middle
    return [*([tree.range_hash(begin, end)] if begin else []), *path[::-1]]


def roots_by_growth(path: list[bytes], *, before: int, size: int, root_before: bytes) -> tuple[bytes, bytes]:
    """Return the two roots that a proof of growth leads to (RFC 9162, 2.1.4.2); none of them when it is too long."""
    first, *rest = path if before & (before - 1) else [root_before, *path]
    at, last, root = before - 1, size - 1, first
    while at & 1:
        at, last = at >> 1, last >> 1
    for each in rest:
        if not last:
            return b"", b""
        if at & 1 or at == last:
            first, root = node_hash(each, first), node_hash(each, root)
            while not at & 1 and at:
                at, last = at >> 1, last >> 1
        else:
            root = node_hash(root, each)
        at, last = at >> 1, last >> 1
    return (first, root) if last == 0 else (b"", b"")


def test_the_tree_is_that_of_rfc_6962() -> None:
    leaves = [bytes.fromhex(leaf) for leaf in RFC["leaves"]]
    tree, stranger = tree_of(leaves), verify_sale.Replay()
    assert (tree.root(0).hex(), EMPTY_ROOT.hex()) == (RFC["empty_root"],) * 2
    assert stranger.root().hex() == RFC["empty_root"]
    for size, root in enumerate(RFC["roots"], start=1):
        stranger.add(leaves[size - 1])
        assert (tree.root(size).hex(), stranger.root().hex()) == (root, root)
    for each in RFC["paths"]:
        assert [one.hex() for one in tree.inclusion(each["leaf"], each["size"])] == each["path"]


@pytest.mark.parametrize("proof", RFC["growth"], ids=lambda proof: f"{proof['before']} to {proof['size']}")
def test_growth_is_proved_as_the_reference_implementation_proves_it(proof: dict[str, Any]) -> None:
    """The control: a proof with a hash less, more or altered leads to other roots."""
    before, size, path = proof["before"], proof["size"], [bytes.fromhex(each) for each in proof["path"]]
    tree = tree_of([bytes.fromhex(leaf) for leaf in RFC["leaves"]])
    roots = tree.root(before), tree.root(size)
    assert tuple(each.hex() for each in roots) == (RFC["roots"][before - 1], RFC["roots"][size - 1])
    assert growth_of(tree, before=before, size=size) == path

    def led_to(hashes: list[bytes]) -> tuple[bytes, bytes]:
        return roots_by_growth(hashes, before=before, size=size, root_before=roots[0])

    assert led_to(path) == roots
    altered = [[*path[:at], leaf_hash(path[at]), *path[at + 1 :]] for at in range(len(path))]
    for wrong in [[*path, EMPTY_ROOT], *altered, *([path[1:], path[:-1]] if path else [])]:
        assert led_to(wrong) != roots


@pytest.mark.parametrize("steps", [1, 7, 256, 300, 70_000])
def test_a_tree_of_many_tiles_has_one_root_however_it_grew(steps: int) -> None:
    leaves = [b"%d" % number for number in range(66_000)]
    tree, stranger = tree_of(leaves, steps=steps), verify_sale.Replay()
    for size, leaf in enumerate(leaves, start=1):
        stranger.add(leaf)
        if size in (255, 256, 257, 511, 65_535, 65_536, 65_537, 66_000):
            assert tree.root(size) == stranger.root(), size
            for index in {0, 1, 255, 256, size // 2, size - 1} & set(range(size)):
                path = tree.inclusion(index, size)
                assert root_by_path(leaves[index], index=index, size=size, path=path) == stranger.root()
                path[-1] = leaf_hash(path[-1])  # the control
                assert root_by_path(leaves[index], index=index, size=size, path=path) != stranger.root()


def test_a_note_is_named_and_signed_as_the_specification_s_example() -> None:
    vector = VECTORS["signed_note"]
    name, key_id, key = vector["verifier_key"].split("+", 2)
    text, _, line = vector["note"].partition("\n\n")
    signature, public = b64decode(line.split(" ")[2]), b64decode(key)[1:]
    assert note_key_id(name, public) == signature[:4] == bytes.fromhex(key_id)
    known = Ed25519PublicKey.from_public_bytes(public)
    known.verify(signature[4:], f"{text}\n".encode())
    with pytest.raises(InvalidSignature):  # the control
        known.verify(signature[4:], text.encode())


def test_tiles_are_named_as_the_specification_says() -> None:
    for number, path in VECTORS["tile_paths"]["paths"].items():
        assert number_path(int(number)) == path
        assert NUMBER.fullmatch(path)
        assert NUMBER.fullmatch(f"{path}.p/255")
    assert not NUMBER.fullmatch("x001/x234/067.p/0")


@WITH_KEY
def test_the_log_of_the_document_is_what_this_shop_would_publish() -> None:
    leaves = [leaf.encode() for leaf in LOG["leaves"]]
    tree, (key,) = tree_of(leaves), log_keys()
    assert (key.key_id, encode(key.public)) == (KEY["key"], KEY["public"])
    assert sign(Checkpoint(LOG["origin"], len(leaves), tree.root(len(leaves)))) == LOG["checkpoint"]
    proof = LOG["proof"]
    assert [encode(each) for each in tree.inclusion(proof["index"], len(leaves))] == proof["path"]
    assert (
        holder_of(VECTORS["holder"]["request_key"].encode(), VECTORS["holder"]["buyer"]) == VECTORS["holder"]["holder"]
    )
    bundle = b"".join(len(leaf).to_bytes(2, "big") + leaf for leaf in leaves)
    assert bundle.hex().startswith(LOG["first_bundle_bytes"])
    assert (list(leaves_of(bundle)), list(leaves_of(bundle_of(bundle, 4)))) == (leaves, leaves[:4])


@WITH_KEY
@pytest.mark.parametrize(
    "change",
    [
        lambda note: note.replace("\n9\n", "\n8\n"), lambda note: note[:-20], lambda note: "",
        lambda note: note.partition("\n\n")[0],
        lambda note: note.replace("lantern", "teapot"), lambda note: note.replace("—", "-"),
    ],
    ids=["size", "cut", "empty", "unsigned", "origin", "dash"],
)  # fmt: skip
def test_a_checkpoint_that_was_altered_is_refused(change: Any) -> None:
    assert read_note(LOG["checkpoint"]).size == 9
    with pytest.raises(ValueError, match=r"checkpoint|padding|unpack|base64|characters|invalid literal"):
        read_note(change(LOG["checkpoint"]))


def test_an_older_key_is_known_and_signs_no_more() -> None:
    new = encode(Ed25519PrivateKey.generate().private_bytes_raw())
    old = f"2026-11-01T00:00:00Z=pub:{KEY['public']}"
    with override_settings(SALE_LOG=True, LOG_KEYS=[f"2026-12-01T00:00:00Z={new}", old]):
        first, second = log_keys()
        assert (first.ends, second.ends, second.private) == (None, "2026-12-01T00:00:00Z", None)
        assert second.public == decode(KEY["public"])
        assert read_note(LOG["checkpoint"]).origin == LOG["origin"]
    with override_settings(
        SALE_LOG=True, LOG_KEYS=[f"2026-11-01T00:00:00Z={KEY['seed']}", f"2026-12-01T00:00:00Z={new}"]
    ):
        first, appended = log_keys()
        assert (first.ends, appended.ends) == (None, None)
    for keys in ([], [old.replace("pub:", "")[:-1]]):
        with override_settings(SALE_LOG=True, LOG_KEYS=keys), pytest.raises((LogOff, ValueError)):
            log_keys()


ADMITTED = {
    "kind": "admitted", "ordinal": 2, "seq": 9, "request": 'a"\\é', "holder": "-_\n", "quantity": 3, "terms": 4
}  # fmt: skip
DECIDED = {"kind": "decided", "request": "7-\u2028", "outcome": "held"}


@pytest.mark.parametrize(
    "leaf", [ADMITTED, ADMITTED | {"standby": True}, DECIDED, DECIDED | {"reason": "refused"}, {"kind": "closed"}]
)
def test_each_leaf_is_written_as_sorted_json_without_spaces(leaf: dict[str, Any]) -> None:
    """Whatever its texts hold: most are put together by hand."""
    whole = {**leaf, "n": 5, "at": 1_800_000_000_000_001}
    expected = json.dumps(whole, sort_keys=True, separators=(",", ":")).encode()
    assert leaf_text(leaf, index=5, at_us=whole["at"]) == expected
