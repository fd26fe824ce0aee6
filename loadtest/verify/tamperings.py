"""Ways to tamper with a log whose key one has: what each changes, and which rule must name it.
Each takes the leaves of a recorded sale, finished or cut off while it runs, and returns others; LookupError: not yet.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from typing import Any, NamedTuple

Leaf = dict[str, Any]
Leaves = list[Leaf]


class Tampering(NamedTuple):
    """One tampering. rule: which names it; '' for one that cannot be seen. needs_kept: by a checkpoint only.

    needs_tickets: by those that the buyers kept. why: what a verifier can and cannot know of it.
    """

    name: str
    change: Callable[[Leaves], Leaves]
    rule: str
    needs_kept: bool = False
    why: str = ""
    needs_tickets: bool = False


def where(leaves: Leaves, kind: str, *, after: int = -1, **words: Any) -> int:
    """Return the number of the first leaf of a kind after another one that says this."""
    for number, leaf in enumerate(leaves):
        if number > after and leaf["kind"] == kind and all(leaf.get(word) == value for word, value in words.items()):
            return number
    raise LookupError(f"the recorded sale has no {kind} {words}")


def put_in(leaves: Leaves) -> Leaves:
    at = where(leaves, "admitted", ordinal=3)
    friend = {**leaves[at], "request": "friend", "holder": "friend", "seq": leaves[at - 1]["seq"] + 1}
    gone = {"kind": "ended", "request": "friend", "outcome": "left", "units": 0, "at": leaves[-1]["at"]}
    return [*leaves[:at], friend, *leaves[at:], gone]


def rename(leaves: Leaves, old: str, new: str) -> Leaves:
    return [{**leaf, "request": new} if leaf.get("request") == old else leaf for leaf in leaves]


def replace_winner(leaves: Leaves) -> Leaves:
    winner = leaves[where(leaves, "decided", outcome="held")]["request"]
    leaves[where(leaves, "admitted", request=winner)]["holder"] = "friend"
    return rename(leaves, winner, "friend")


def one_without(leaves: Leaves) -> Leaf:
    """Return the first place that got no unit, and has not left: told sold out, or still waiting."""
    other = {leaf["request"] for leaf in leaves if leaf.get("outcome") in ("held", "left")}
    return next(leaf for leaf in leaves if leaf["kind"] == "admitted" and leaf["request"] not in other)


def drop_place(leaves: Leaves) -> Leaves:
    gone = one_without(leaves)["request"]
    return [leaf for leaf in leaves if leaf.get("request") != gone]


def remove_and_close_up(leaves: Leaves) -> Leaves:
    gone = one_without(leaves)
    for leaf in leaves:
        if leaf["kind"] == "admitted" and leaf["ordinal"] > gone["ordinal"]:
            leaf["ordinal"] -= 1
    return [leaf for leaf in leaves if leaf.get("request") != gone["request"]]


def swap_decisions(leaves: Leaves) -> Leaves:
    first = where(leaves, "decided", outcome="held")
    second = where(leaves, "decided", outcome="held", after=first)
    leaves[first]["request"], leaves[second]["request"] = leaves[second]["request"], leaves[first]["request"]
    return leaves


def who_is_next(leaves: Leaves) -> tuple[int, str, str]:
    """Return where the first unit came back, who got it, and who got the next one."""
    back = where(leaves, "ended", outcome="expired")
    at = where(leaves, "decided", outcome="held", after=back)
    return back, leaves[at]["request"], leaves[where(leaves, "decided", outcome="held", after=at)]["request"]


def favour_a_friend(leaves: Leaves) -> Leaves:
    """Give a unit that came back to somebody further back, and theirs, which comes later, to the next in line."""
    back, winner, friend = who_is_next(leaves)
    changed = leaves[: back + 1]
    for leaf in leaves[back + 1 :]:
        other = {winner: friend, friend: winner}.get(leaf.get("request", ""))
        changed.append({**leaf, "request": other} if other and leaf["kind"] != "admitted" else leaf)
    return changed


def favour_behind_a_shield(leaves: Leaves) -> Leaves:
    """As above, with somebody ahead of the one who is passed over, who leaves when the friend has the unit."""
    _, winner, friend = who_is_next(leaves)
    changed = favour_a_friend(leaves)
    at = where(changed, "admitted", request=winner)
    shield = {**changed[at], "request": "shield", "holder": "shield"}
    for leaf in changed[at:]:
        if leaf["kind"] == "admitted":
            leaf.update(ordinal=leaf["ordinal"] + 1, seq=leaf["seq"] + 1)
    held = where(changed, "decided", request=friend)
    left = {"kind": "ended", "request": "shield", "outcome": "left", "units": 0, "at": changed[held]["at"]}
    return [*changed[:at], shield, *changed[at : held + 1], left, *changed[held + 1 :]]


def favour_over_standby(leaves: Leaves) -> Leaves:
    """Let a friend into the line while somebody stands by, and give them the unit that came back."""
    _, winner, friend = who_is_next(leaves)
    changed = favour_a_friend(leaves)
    for leaf in changed[where(changed, "admitted", request=winner) :]:
        if leaf["kind"] == "admitted" and leaf["request"] != friend:
            leaf["standby"] = True
    return changed


def pass_the_limit(leaves: Leaves) -> Leaves:
    first = leaves[where(leaves, "ended", outcome="paid")]["request"]
    holder = leaves[where(leaves, "admitted", request=first)]["holder"]
    after = where(leaves, "ended", outcome="paid")
    second = leaves[where(leaves, "decided", outcome="held", after=after)]["request"]
    leaves[where(leaves, "admitted", request=second)]["holder"] = holder
    return leaves


def change_price(leaves: Leaves) -> Leaves:
    leaves[0]["terms"]["price"] = "1.00"
    return leaves


def publish_version_again(leaves: Leaves) -> Leaves:
    act = {"kind": "act", "act": "terms", "role": "staff", "reason": "none", "at": leaves[-1]["at"]}
    return [*leaves, {**act, "terms": {**leaves[0]["terms"], "price": "1.00"}}]


def rewrite_act(leaves: Leaves) -> Leaves:
    leaves[where(leaves, "act", act="pause")]["role"] = "shop"
    return leaves


def back_date(leaves: Leaves) -> Leaves:
    leaves[where(leaves, "decided")]["at"] = leaves[0]["at"] - 1
    return leaves


def lower_seq(leaves: Leaves) -> Leaves:
    leaves[where(leaves, "admitted", ordinal=3)]["seq"] = 1
    return leaves


def oversell(leaves: Leaves) -> Leaves:
    name = one_without(leaves)["request"]
    held = {"kind": "decided", "request": name, "outcome": "held", "at": leaves[-1]["at"]}
    for leaf in leaves:
        if leaf["kind"] == "decided" and leaf["request"] == name:
            leaf["outcome"] = "held"
            return leaves
    return [*leaves, held]


def hide_a_unit(leaves: Leaves) -> Leaves:
    """Tell the last who got a unit that all are sold."""
    at = max(number for number, leaf in enumerate(leaves) if leaf.get("outcome") == "held")
    name = leaves[at]["request"]
    leaves[at]["outcome"] = "sold_out"
    return [leaf for leaf in leaves if leaf["kind"] != "ended" or leaf["request"] != name]


def keep_units(leaves: Leaves) -> Leaves:
    leaves[where(leaves, "ended", outcome="expired")]["units"] = 0
    return leaves


def decide_in_a_pause(leaves: Leaves) -> Leaves:
    resume = leaves.pop(where(leaves, "act", act="resume"))
    return [*leaves, {**resume, "at": leaves[-1]["at"]}]


def never_answer(leaves: Leaves) -> Leaves:
    where(leaves, "closed")
    last = max(number for number, leaf in enumerate(leaves) if leaf.get("outcome") == "sold_out")
    return [leaf for number, leaf in enumerate(leaves) if number != last]


def decide_twice(leaves: Leaves) -> Leaves:
    return [*leaves, {**leaves[where(leaves, "decided", outcome="held")], "at": leaves[-1]["at"]}]


def publish_nothing(leaves: Leaves) -> Leaves:
    return leaves[:0]


def go_back(leaves: Leaves) -> Leaves:
    return leaves[: len(leaves) // 2]


def fork(leaves: Leaves) -> Leaves:
    """Lose what a restored database does not have, and go on past the checkpoint of before."""
    half = go_back(leaves)
    act = {"kind": "act", "act": "announce", "role": "staff", "reason": "none", "at": leaves[-1]["at"]}
    return [*half, *([act] * len(leaves))]


def show_another_view(leaves: Leaves) -> Leaves:
    """Show a log of the same length, in which the last thing has not happened."""
    act = {"kind": "act", "act": "announce", "role": "staff", "reason": "none", "at": leaves[-1]["at"]}
    return [*leaves[:-1], act]


def invent_a_loss(leaves: Leaves) -> Leaves:
    """Declare the next ordinals lost, and let a friend come back with one of them, ahead of all who wait."""
    at = where(leaves, "decided", outcome="held", after=where(leaves, "ended", outcome="expired"))
    winner = leaves[at]["request"]
    last = max(leaf["ordinal"] for leaf in leaves[:at] if leaf["kind"] == "admitted")
    place = {**leaves[where(leaves, "admitted", request=winner)], "at": leaves[at]["at"]}
    loss = {"kind": "recovered", "lost": [[last + 1, last + 9]], "restored": ["friend"], "at": leaves[at]["at"]}
    friend = {**place, "request": "friend", "holder": "friend", "ordinal": last + 1}
    later = rename(leaves[at:], winner, "friend")
    for leaf in later:
        if leaf["kind"] == "admitted":
            leaf["ordinal"] += 9
    lost = {"kind": "ended", "request": winner, "outcome": "left", "units": 0, "at": leaves[-1]["at"]}
    return [*leaves[:at], loss, friend, *later, lost]


def add_units_by_less_than_none(leaves: Leaves) -> Leaves:
    """Let a ghost hold a unit less than none, so that a friend gets one more than there is."""
    at = where(leaves, "admitted", ordinal=1)
    first = leaves[at]
    changed = leaves[:at]
    for number, (name, quantity) in enumerate((("ghost", -1), ("friend", 1))):
        place = {**first, "request": name, "holder": name, "quantity": quantity}
        place.update(ordinal=number + 1, seq=first["seq"] - 2 + number)
        changed += [place, {"kind": "decided", "request": name, "outcome": "held", "at": first["at"]}]
    for leaf in leaves[at:]:
        changed.append({**leaf, "ordinal": leaf["ordinal"] + 2} if leaf["kind"] == "admitted" else leaf)
    return changed


def refuse_for_no_reason(leaves: Leaves) -> Leaves:
    leaves[where(leaves, "decided", outcome="sold_out")].update(outcome="refused", reason="because")
    return leaves


def never_answer_before_the_end(leaves: Leaves) -> Leaves:
    """As never_answer, with an end that is dated thirty years later."""
    changed = never_answer(leaves)
    for leaf in changed[where(changed, "closed") :]:
        leaf["at"] += 10**15
    return changed


def never_answer_one_put_back(leaves: Leaves) -> Leaves:
    last = max((leaf for leaf in leaves if leaf.get("outcome") == "sold_out"), key=leaves.index, default={})
    back = {"kind": "requeued", "request": last.get("request"), "seq": 1, "at": leaves[-1]["at"]}
    return [*never_answer(leaves), back]


def last_place(leaves: Leaves) -> Leaf:
    return max((leaf for leaf in leaves if leaf["kind"] == "admitted"), key=lambda leaf: int(leaf["ordinal"]))


def date_a_place_ahead(leaves: Leaves) -> Leaves:
    last_place(leaves)["seq"] += 10**15
    return leaves


def let_in_after_the_end(leaves: Leaves) -> Leaves:
    at, last = leaves[where(leaves, "closed")]["at"] + 1800 * 1_000_000, last_place(leaves)
    friend = {**last, "request": "friend", "holder": "friend", "ordinal": last["ordinal"] + 1, "seq": at, "at": at}
    return [*leaves, friend, {"kind": "ended", "request": "friend", "outcome": "left", "units": 0, "at": at}]


def give_a_place_to_two(leaves: Leaves) -> Leaves:
    """Declare a loss, and bring two back with one ordinal."""
    last, at, names = last_place(leaves), leaves[-1]["at"], ("one", "two")
    ordinal = last["ordinal"] + 1
    changed = [*leaves, {"kind": "recovered", "lost": [[ordinal, ordinal]], "restored": [*names], "at": at}]
    for name in names:
        changed.append({**last, "request": name, "holder": name, "ordinal": ordinal, "at": at})
        changed.append({"kind": "ended", "request": name, "outcome": "left", "units": 0, "at": at})
    return changed


KEPT = "only a checkpoint from before shows it; the buyer concerned also has the proof of their place"
TAMPERINGS = (
    Tampering("a buyer is put in before others", put_in, "admitted"),
    Tampering("a winner is replaced by a friend, everywhere", replace_winner, "kept", True, KEPT),
    Tampering("a buyer is removed", drop_place, "admitted"),
    Tampering("a buyer is removed, and all ordinals close up", remove_and_close_up, "kept", True, KEPT),
    Tampering("the place of a ticket is given to a friend", replace_winner, "ticket", needs_tickets=True),
    Tampering("the place of a ticket is removed, and all close up", remove_and_close_up, "ticket", needs_tickets=True),
    Tampering("two decisions are swapped", swap_decisions, "order"),
    Tampering("a unit that came back goes to a friend further back", favour_a_friend, "order"),
    Tampering("the same, and one at the head of the line leaves after it", favour_behind_a_shield, "order"),
    Tampering("a friend in the line gets what is due to one on standby", favour_over_standby, "order"),
    Tampering("a ghost holds a unit less than none, a friend one more", add_units_by_less_than_none, "format"),
    Tampering("somebody is refused for a reason that is none", refuse_for_no_reason, "format"),
    Tampering("somebody is never answered, and the end is dated ahead", never_answer_before_the_end, "format"),
    Tampering("somebody is never answered, and said to be put back", never_answer_one_put_back, "answered"),
    Tampering("a place is dated ahead", date_a_place_ahead, "admitted"),
    Tampering("a friend is let in half an hour after the end", let_in_after_the_end, "admitted"),
    Tampering("a place that was declared lost is given to two", give_a_place_to_two, "admitted"),
    Tampering("a holder gets more than the limit", pass_the_limit, "limit"),
    Tampering("the price is changed afterwards", change_price, "kept", True, KEPT),
    Tampering("a version of the terms is published again, at another price", publish_version_again, "terms"),
    Tampering("an act of staff is rewritten", rewrite_act, "kept", True, KEPT),
    Tampering("a leaf is back-dated", back_date, "format"),
    Tampering("a place is back-dated", lower_seq, "admitted"),
    Tampering("more is sold than there is", oversell, "units"),
    Tampering("somebody is told sold out, and a unit is free", hide_a_unit, "sold_out"),
    Tampering("a unit that came back is not given on", keep_units, "units"),
    Tampering("somebody is decided during a pause", decide_in_a_pause, "pause"),
    Tampering("somebody is never answered", never_answer, "answered"),
    Tampering("somebody is decided twice", decide_twice, "life"),
    Tampering("nothing is published", publish_nothing, "life"),
    Tampering("an old checkpoint is served again", go_back, "kept", True, "only a longer checkpoint shows it"),
    Tampering("the log forks after its database was restored", fork, "kept", True, KEPT),
    Tampering("two people are shown two logs", show_another_view, "kept", True,
              "only the checkpoint of somebody who was shown the other log shows it; cosigners compare"),
    Tampering("a loss is invented to let a friend in", invent_a_loss, "", False,
              "every loss, and each place that came back, is declared; whether it was one, no log can say"),
)  # fmt: skip


def copy_of(leaves: Leaves) -> Leaves:
    """Return leaves that may be changed."""
    return deepcopy(leaves)
