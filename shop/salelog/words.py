"""What the page of a log says: a word for each kind of leaf, a sentence for each rule. Never decides anything."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.utils.translation import gettext_lazy as _

# The rules of docs/checkable-line.md, in its order.
RULES = {
    "signed": _("The checkpoint is signed by a key that the shop published."),
    "tree": _("The entries are those that the checkpoint signs."),
    "kept": _("The log has grown from the one that this browser saw before, and no key has changed."),
    "format": _("Each entry is numbered, written as agreed, and not older than the one before it."),
    "admitted": _("Places follow each other without a gap that is not declared, and each is given once."),
    "terms": _("Every place was given under terms that were published, and those never change."),
    "order": _("Nobody was decided before somebody who stood ahead of them."),
    "life": _("Each request is decided once, and ends once, as a request can."),
    "units": _("No unit was given that was not free, and each that came back is counted."),
    "sold_out": _("Nobody was told sold out while their units were free or could come back."),
    "limit": _("Nobody has more than the limit, and nobody was refused below it."),
    "pause": _("Nobody was decided while the sale was paused."),
    "answered": _("Everybody had an answer two minutes after the end of the sale."),
}
WORDS = {
    "opened": _("The sale opened"),
    "admitted": _("Got a place in line"),
    "on_standby": _("Got a place on standby"),
    "held": _("Units were held for them"),
    "sold_out": _("Was told: sold out"),
    "refused": _("Was refused"),
    "paid": _("Paid"),
    "expired": _("The hold ran out"),
    "cancelled": _("Gave it back"),
    "refunded": _("Money went back"),
    "left": _("Left the line"),
    "retaken": _("Paid late, and got it again"),
    "stock": _("Units came or went"),
    "act_staff": _("Act of staff"),
    "act_shop": _("Act of the shop's own processes"),
    "requeued": _("Was put back in line"),
    "recovered": _("Places were lost or brought back"),
    "closed": _("The sale is over"),
}
# Why orders were voided before shipping: the codes that a log publishes, and what it says of any other reason.
VOIDED = {
    "void_buyer_asked": _("The buyers asked for it"),
    "void_faulty": _("The goods are faulty"),
    "void_not_deliverable": _("The goods cannot be delivered"),
    "void_sale_called_off": _("The sale is called off"),
    "void_suspected_fraud": _("Suspected fraud"),
    "void_our_mistake": _("A mistake of ours"),
    "void_given": _("Another reason"),
    "void_none": _("No reason"),
}
# What log/page.js puts numbers and names into.
SENTENCES = {
    "reading": _("Reading: {read} of {size} entries. No rule is broken so far."),
    "good": _("Every rule holds. This browser has checked {size} entries."),
    "unsigned": _("Every rule holds for {size} entries, but this browser cannot check signatures: use another one."),
    "bad": _("Broken so far: {broken} of {all} rules. Keep a picture of this page, and ask the shop to explain it."),
    "failed": _("The log could not be read to its end ({why}). Load this page again."),
    "to": _("went to {request}"),
    "from": _("came back in entry {n}"),
    "nobody": _("still free"),
    "more": _("and {n} more in this second"),
    "declared": _(
        "Declared, and to be believed: {lost} places lost or never given, {restored} brought back, {requeued} put back."
    ),
    "play": _("Play"),
    "stop": _("Stop"),
    "ready": _("Save the file"),
    "waiting": _("in line"),
    "free": _("free"),
    "taken": _("held"),
    "sold": _("paid"),
    "fresh": _("This browser saw nothing of this log before."),
}


def word_of(leaf: Mapping[str, Any]) -> str:
    """Return the name, in WORDS, of what a leaf says; log/page.js has the same."""
    kind = leaf["kind"]
    if kind in ("decided", "ended"):
        return str(leaf["outcome"])
    if kind == "act":
        return "act_staff" if leaf["role"] == "staff" else "act_shop"
    return "on_standby" if leaf.get("standby") else str(kind)
