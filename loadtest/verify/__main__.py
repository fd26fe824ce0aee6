"""The adversary's lab: tampers with copies of a recorded sale's log, finished and while the sale runs, and prints which
rule names each. Opens no port.

    python -m loadtest.verify [FILE]     leaves, one a line; by default the sale recorded alongside this file

Exit code 1 when a tampering is not named by the rule that must, when an untampered log is, or when a tampering is still
named though its rule is off.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Collection, Sequence
from pathlib import Path

from loadtest.verify.signed_log import OTHER_KEY, SLUG, SignedLog, checkpoint_of, root_of, tickets_of, write
from loadtest.verify.tamperings import TAMPERINGS, Leaves, Tampering, copy_of
from loadtest.verify.verify_sale import Verifier

RECORDED = Path(__file__).with_name("recorded_sale.jsonl")
# docs/checkable-line.md says more of each.
NEVER_SEEN = (
    "buyers who were invented from the beginning",
    "an ask that was delayed before it was answered",
    "two views of one log, a log that was written again, while nobody compares checkpoints",
    "whether a loss that was declared was one",
    "a hold that ended before its promised time",
    "who stands behind a pseudonym",
)


def recorded(path: Path = RECORDED) -> Leaves:
    """Return the leaves of a recorded log."""
    return [json.loads(line) for line in path.read_text().splitlines()]


def running(leaves: Leaves) -> Leaves:
    """Return the leaves of a log as they were just before its sale was closed."""
    return leaves[: next((number for number, leaf in enumerate(leaves) if leaf["kind"] == "closed"), len(leaves))]


def later_than(leaves: Leaves) -> int:
    """Return the moment of a verifier's clock that reads an honest log an hour after it: tampered leaves may lie."""
    return int(leaves[-1]["at"]) + 3600 * 1_000_000


def judge(
    log: SignedLog, *, now_us: int | None = None, kept: Sequence[bytes] | None = None, tickets: Sequence[str] = (),
    off: Collection[str] = (),
) -> set[str]:  # fmt: skip
    """Return the rules that a log breaks. kept: leaves of which a checkpoint was kept; tickets: that buyers kept.

    now_us: by the verifier's clock; by default an hour after the last leaf, as if that told the truth.
    """
    verifier = Verifier(log.get, SLUG, off=off)
    if kept is not None:
        verifier.kept = {len(kept): root_of(kept)}
    verifier.read_keys()
    for ticket in tickets:
        verifier.show(ticket)
    verifier.round()
    verifier.replay.finish(verifier.replay.at + 3600 * 1_000_000 if now_us is None else now_us)
    return set(verifier.replay.faults)


def try_out(tampering: Tampering, leaves: Leaves) -> tuple[str, list[str]]:
    """Return what a tampering is named by, and what is not as it must be."""
    honest, tampered, now_us = write(leaves), write(tampering.change(copy_of(leaves))), later_than(leaves)
    tickets = all_tickets(leaves) if tampering.needs_tickets else []
    alone = judge(SignedLog(tampered), now_us=now_us, tickets=tickets)
    with_kept = judge(SignedLog(tampered), now_us=now_us, kept=honest)
    wrong = []
    if tampering.rule not in {"", *(with_kept if tampering.needs_kept else alone)}:
        wrong.append(f"{tampering.name}: not named by {tampering.rule}, but by {sorted(alone | with_kept)}")
    if tampering.needs_kept or not tampering.rule:
        wrong += [f"{tampering.name}: named by {sorted(alone)} alone"] if alone else []
    kept = honest if tampering.needs_kept else None
    without = judge(SignedLog(tampered), now_us=now_us, kept=kept, tickets=tickets, off={tampering.rule})
    wrong += [f"{tampering.name}: named by {sorted(without)} without its rule"] if without else []
    named = f"✓ {tampering.rule}" if tampering.rule else "– not seen"
    by = ", with a checkpoint kept before" if tampering.needs_kept else ""
    return named + by + (", with the buyer's ticket" if tampering.needs_tickets else ""), wrong


def all_tickets(leaves: Leaves) -> list[str]:
    """Return the tickets of all places of a log."""
    return tickets_of([leaf for leaf in leaves if leaf["kind"] == "admitted"])


def try_signatures(leaves: Leaves) -> list[str]:
    """Return what is wrong with how leaves that nobody signed, and a checkpoint of another key, are named."""
    texts, now_us = write(leaves), later_than(leaves)
    altered = write([*leaves[:-1], {**leaves[-1], "at": leaves[-1]["at"] + 1}])
    cases = {
        "tree": SignedLog(altered, checkpoint=checkpoint_of(texts)),
        "signed": SignedLog(texts, checkpoint=checkpoint_of(texts, key=OTHER_KEY)),
    }
    found = {rule: judge(log, now_us=now_us) for rule, log in cases.items()}
    wrong = [f"{rule}: named by {sorted(each)}" for rule, each in found.items() if each != {rule}]
    is_named = {rule: judge(log, now_us=now_us, off={rule}) for rule, log in cases.items()}
    return wrong + [f"{rule}: named though it is off" for rule, each in is_named.items() if each]


def try_all(leaves: Leaves) -> tuple[dict[str, str], list[str]]:
    """Return what each tampering is named by, by its name, and what is not as it must be."""
    texts = write(leaves)
    untampered = judge(SignedLog(texts), now_us=later_than(leaves), kept=texts, tickets=all_tickets(leaves))
    wrong = [f"untampered: named by {rule}" for rule in sorted(untampered)] + try_signatures(leaves)
    named = {}
    for tampering in TAMPERINGS:
        try:
            named[tampering.name], faults = try_out(tampering, leaves)
            wrong += faults
        except LookupError:
            named[tampering.name] = "only when it is over"
    return named, wrong


def main(arguments: Sequence[str]) -> int:
    """Try every tampering out; print the table."""
    leaves = recorded(Path(arguments[0])) if arguments else recorded()
    (over, wrong), (early, wrong_early) = try_all(leaves), try_all(running(leaves))
    wrong += [f"while it runs: {fault}" for fault in wrong_early]
    for name, while_it_runs in early.items():  # what is named while the sale runs stands out only where it differs
        print(f"  {name:<62}{over[name]}{f'; while it runs: {while_it_runs}' if while_it_runs != over[name] else ''}")
    print("  leaves that nobody signed, a checkpoint of another key".ljust(64) + "✓ tree, ✓ signed")
    print(f"\n{len(leaves):,} leaves, and the first {len(running(leaves)):,} while the sale ran; untampered: no fault")
    print("\nWhat takes more than the log:")
    print(*(f"  – {each.name}: {each.why}" for each in TAMPERINGS if each.why), sep="\n")
    print("\nCannot be seen:", *NEVER_SEEN, sep="\n  – ")
    print("\nEach tampering passes when its rule is off.", *wrong, sep="\n" if not wrong else "\n✗ ")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
