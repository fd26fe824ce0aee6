"""Cosignatures of checkpoints: made only of logs that have grown, and compared with those of others. Opens no port."""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from loadtest.verify import verify_sale
from loadtest.verify.__main__ import recorded
from loadtest.verify.signed_log import SLUG, SignedLog, checkpoint_of, write
from loadtest.verify.tamperings import change_price, oversell
from loadtest.verify.verify_sale import Verifier, cosign, cosigned, key_id, main, run
from tests.rules.sources import ROOT

VECTORS: dict[str, Any] = json.loads((ROOT / "docs" / "checkable-line.json").read_text())["cosignature"]
MAX_LINES = 416


def check(log: Sequence[bytes], keep: Path, *, cosigner: Path | None = None, vkeys: str = "") -> int:
    """Run the verifier over a log."""
    return run(Verifier(SignedLog(log).get, SLUG, vkeys=vkeys), keep=keep, cosigner=cosigner)


def vkey_in(printed: str) -> str:
    """Return the vkey that was printed."""
    (line,) = (line for line in printed.splitlines() if "cosigned, as " in line)
    return line.partition("cosigned, as ")[2]


@pytest.fixture
def anna(tmp_path: Path) -> Path:
    """The key of a cosigner, not made yet."""
    return tmp_path / "anna.example"


def test_a_checkpoint_is_cosigned_and_the_key_is_made(
    anna: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log, keep = write(recorded()), tmp_path / "kept"
    assert check(log, keep, cosigner=anna) == 0
    assert anna.stat().st_mode & 0o777 == 0o600
    name, said, public = vkey_in(capsys.readouterr().out).split("+", 2)
    note = (keep / str(len(log))).read_text()
    text, _, lines = note.partition("\n\n")
    blob = b64decode(lines.splitlines()[-1].split(" ")[2])
    at, known = int.from_bytes(blob[4:12], "big"), b64decode(public)
    assert (name, said, known[0], len(blob)) == ("anna.example", blob[:4].hex(), 4, 76)
    message = f"cosignature/v1\ntime {at}\n{text}\n".encode()
    Ed25519PublicKey.from_public_bytes(known[1:]).verify(blob[12:], message)
    assert note.startswith(checkpoint_of(log))
    assert check(log, keep, cosigner=anna) == 0  # the same key again, and the cosigned file is read
    assert vkey_in(capsys.readouterr().out) == f"{name}+{said}+{public}"


@pytest.mark.parametrize("change", [change_price, oversell, lambda leaves: leaves[:30]], ids=["forks", "rule", "old"])
def test_what_has_not_grown_or_breaks_a_rule_is_never_cosigned(
    change: Any, anna: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    honest, keep = write(recorded()), tmp_path / "kept"
    assert check(honest[:40] if change is oversell else honest, keep) == 0
    files = {file.name: file.read_text() for file in keep.iterdir()}
    assert check(write(change(recorded())), keep, cosigner=anna) == 1
    assert "cosigned" not in capsys.readouterr().out
    assert not anna.exists()
    assert {file.name: file.read_text() for file in keep.iterdir()} == files
    assert check(honest, keep, cosigner=anna) == 0  # the control: the log that has grown is


def test_without_what_was_kept_a_fork_would_be_cosigned(anna: Path, tmp_path: Path) -> None:
    """The control of the test before: it is the comparison that refuses."""
    assert check(write(recorded()), tmp_path / "mine") == 0
    assert check(write(change_price(recorded())), tmp_path / "empty", cosigner=anna) == 0


def test_cosigning_without_keeping_is_refused(anna: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["http://127.0.0.1:9/sales/none/", "--cosign", str(anna)])
    assert "--cosign needs --keep" in capsys.readouterr().err
    assert not anna.exists()


def test_what_others_cosigned_is_compared(anna: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One file with the checkpoints of two others, one after the other; a third has cosigned nothing."""
    log, keep, bert, vkeys = write(recorded()), tmp_path / "kept", tmp_path / "bert.example", []
    notes = []
    for size, cosigner in ((30, anna), (40, bert)):
        notes.append(cosign(checkpoint_of(log[:size]), cosigner))
        vkeys.append(vkey_in(capsys.readouterr().out))
    cosign(checkpoint_of(log), tmp_path / "carl.example")
    vkeys.append(vkey_in(capsys.readouterr().out))
    keep.mkdir()
    (keep / "others").write_text("".join(notes))
    assert check(log, keep, vkeys="\n".join(vkeys)) == 0
    printed = capsys.readouterr().out
    assert "anna.example cosigned 30 leaves until 20" in printed
    assert "bert.example cosigned 40 leaves until 20" in printed
    assert "carl.example cosigned 0 leaves" in printed
    assert "✓ all who cosigned have seen this log" in printed
    (keep / "others").write_text(notes[0] + cosign(checkpoint_of(write(change_price(recorded()))[:40]), bert))
    capsys.readouterr()
    assert check(log, keep, vkeys="\n".join(vkeys)) == 1
    assert "✗ not all who cosigned have seen this log" in capsys.readouterr().out


@pytest.mark.parametrize("why", ["time", "signature", "text", "future"])
def test_a_cosignature_that_was_altered_is_named(
    why: str, anna: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    log, keep = write(recorded()), tmp_path / "kept"
    note = cosign(checkpoint_of(log[:30]), anna)
    vkey = vkey_in(capsys.readouterr().out)
    line = note.splitlines()[-1]
    blob = bytearray(b64decode(line.split(" ")[2]))
    if why == "text":
        note = checkpoint_of(log[:29]) + f"{line}\n"
    elif why == "future":
        with monkeypatch.context() as patch:
            patch.setattr(verify_sale, "time", SimpleNamespace(time=lambda: 2.0**62))
            note = cosign(checkpoint_of(log[:30]), anna)
    else:
        blob[11 if why == "time" else 70] ^= 1
        note = note.replace(line, f"— anna.example {b64encode(bytes(blob)).decode()}")
    keep.mkdir()
    (keep / "anna").write_text(note)
    assert check(log, keep, vkeys=vkey) == 1
    assert "anna.example did not cosign" in capsys.readouterr().out
    assert check(log, keep) == 0  # the control: of somebody unknown nothing is believed, and nothing is missed


@pytest.mark.parametrize("vkeys", ["anna", "anna+zz+BAAA"])
def test_what_is_no_vkey_is_said_to_be_none(vkeys: str) -> None:
    with pytest.raises(ValueError, match=r"unpack|hexadecimal|padding|base64|fromhex"):
        Verifier(SignedLog([]).get, SLUG, vkeys=vkeys)


def test_a_cosignature_is_that_of_the_vectors() -> None:
    key = Ed25519PrivateKey.from_private_bytes(b64decode(VECTORS["seed"]))
    public = b"\4" + key.public_key().public_bytes_raw()
    own_id, at = key_id(VECTORS["name"], public), VECTORS["time"]
    assert f"{VECTORS['name']}+{own_id.hex()}+{b64encode(public).decode()}" == VECTORS["vkey"]
    assert cosigned(VECTORS["note"], at).decode() == VECTORS["signed_text"]
    line = b64encode(own_id + at.to_bytes(8, "big") + key.sign(VECTORS["signed_text"].encode())).decode()
    assert VECTORS["note"].splitlines()[-1] == f"— {VECTORS['name']} {line}"


def test_key_ids_are_those_of_a_published_implementation() -> None:
    for vkey in VECTORS["published_vkeys"]:
        name, said, public = vkey.split("+", 2)
        assert key_id(name, b64decode(public)).hex() == said
        assert key_id(name, b"\1" + b64decode(public)[1:]).hex() != said  # the control: a key that signs logs


def test_the_example_of_the_specification_has_the_form_of_a_cosignature() -> None:
    example = VECTORS["specification_example"]
    assert verify_sale.NOTE.fullmatch(example["note"])
    blob = b64decode(example["note"].splitlines()[-1].split(" ")[2])
    assert (len(blob), int.from_bytes(blob[4:12], "big")) == (76, example["time"])
    assert cosigned(example["note"], example["time"]).decode() == example["signed_text"]


def test_the_script_is_short_enough_to_be_read() -> None:
    lines = Path(verify_sale.__file__).read_text().splitlines()
    assert sum(bool(line.strip()) for line in lines) <= MAX_LINES
