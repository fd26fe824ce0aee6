"""Marks the codes that pages show to staff for translation: states, kinds, acts, reasons, results, names of counts.
Decides nothing: a code is stored and compared as it is, and only a page translates it.
"""

from __future__ import annotations

from django.utils.translation import gettext_noop as _

# Of sales, their passes, orders, payments, movements, locks, workers and comparisons.
STATES = (
    _("scheduled"), _("open"), _("paused"), _("closed"), _("retired"), _("on"), _("queued"), _("waitlisted"),
    _("standby"), _("held"), _("paid"), _("expired"), _("cancelled"), _("sold_out"), _("sold out"), _("refused"),
    _("refunded"), _("pending"), _("captured"), _("declined"), _("card_declined"), _("refund_due"), _("refund due"),
    _("refund_failed"),
    _("load"), _("adjust"), _("hold"), _("release"), _("retake"), _("return"), _("free"), _("working"),
    _("waiting"), _("line away"), _("database away"), _("silent"), _("asked"), _("running"), _("done"), _("failed"),
    _("unknown"), _("never"), _("always"), _("rush"), _("in a rush"),
    _("always, and one request for each"),
)  # fmt: skip
# Of the log of acts: sales, orders, exports, accounts.
ACTS = (
    _("open"), _("pause"), _("resume"), _("close"), _("terms"), _("retire"), _("restock"), _("adjust"), _("change"),
    _("retry_letters"), _("discard_letters"), _("reconcile"), _("force_release"), _("cancel_order"),
    _("refund_order"), _("void_order"), _("codes"), _("email_list"), _("revoke"), _("unrevoke"), _("mail_order"),
    _("forget_buyer"), _("sent_order"),
    _("forget_order"), _("export_orders"), _("login"), _("login_failed"),
    _("logout"), _("code_taken"), _("code_failed"), _("recovery_code_taken"), _("enrolled"),
    _("new_recovery_codes"), _("passkey_added"), _("passkey_removed"), _("passkey_taken"), _("passkey_failed"),
    _("second_factor_reset"), _("password_again"), _("password_changed"), _("form"),
)  # fmt: skip
# Why an order changed, when no person wrote it; and what became of a provider's notice.
REASONS = (
    _("limit_reached"), _("dead_letter"), _("left_the_line"), _("discarded_by_staff"), _("not paid in time"),
    _("cancelled by the buyer"), _("paid late"),
    _("paid too late: the units went to the next in line"),
    _("paid too late: the buyer has other units, up to the limit"),
    _("given back by the payment provider"), _("nothing was collected in time"), _("the hold is over"),
    _("too many cards were declined"), _("the buyer's bank took this money in a dispute"),
    _("the buyer's bank did not take the refund"),
    _("over and settled"), _("nothing to change"), _("card declined"), _("card declined, at high risk"),
    _("the demo's first delivery"), _("its two minutes are over"), _("no such account"), _("not of the staff"),
    _("while enrolling"), _("asked again"), _("termstemplate"), _("stockmovement"), _("first units"),
    _("not decided"), _("nothing"), _("buyer_asked"), _("faulty"), _("not_deliverable"), _("sale_called_off"),
    _("this is not an e-mail address"), _("an e-mail address has at most 254 characters"),
    _("an e-mail address with quotes or of a machine's number is not taken"),
    _("suspected_fraud"), _("our_mistake"), _("being handed on"), _("the database is away or busy"),
    _("a fault of the program, which is in its log"), _("what Redis says of it is damaged: ask again"),
    _("brought_back"),
)  # fmt: skip
# Why the shop itself paused a sale.
PAUSES = (_("We restored our books from a backup and are checking every order before we sell on."),)
# What an audit counts.
COUNTS = (
    _("total"), _("put_in"), _("available"), _("held"), _("sold"), _("fence"), _("decided"), _("orders_held"),
    _("orders_paid"), _("orders_expired"), _("orders_cancelled"), _("orders_sold_out"), _("orders_refused"),
    _("orders_refunded"), _("units_held"), _("last_seq"), _("queued"), _("waiting"), _("waitlisted"), _("in_flight"),
    _("admitted"), _("dead_letters"),
)  # fmt: skip
# What an audit holds, as its findings name it.
INVARIANTS = (
    _("nothing is oversold, now or at any moment before"),
    _("every unit is somewhere, and the ledger says the same"),
    _("the counters say what the orders say"),
    _("a request takes its units once, and gives them back before it takes them again"),
    _("nothing admitted is lost"),
    _("no unit moves without its request, and the other way round"),
    _("nothing comes from nowhere"),
    _("a request is decided as it was asked"),
    _("nobody has more than the limit"),
    _("decided in the order of the line"),
    _("nobody was told sold out while a unit was free for them"),
    _("a hold ends once, and gives back what it held"),
    _("no hold outlives its time, and none lapses before it"),
    _("money is kept for goods only, and goods are given for money only"),
    _("every change was allowed, and history leads to where the order stands"),
    _("a request is one order"),
    _("the line counts its units"),
    _("fences rise with the movements"),
    _("nobody is in line and in flight at once"),
    _("Redis says nothing that the line or the database does not bear out"),
    _("held and paid are said only of what is committed"),
    _("stock changes through the ledger only, and what is written stays written"),
    _("nobody waits for what is free, or for what cannot come"),
    _("every order has the terms under which its place was given"),
    _("every payment was answered by its provider"),
)
# Why a dead letter stays as it is (inventory/line/dead_letters.py).
LETTERS = (
    _("there is no such dead letter"),
    _("its refusal is under way: try again in a few seconds"),
    _("its outcome was told to its buyer, and its units are free: the buyer may ask again"),
    _("it must be refused before it leaves the list"),
    _("its record cannot be read: discard it"),
)
# What the rights are called that no model has by itself.
RIGHTS = (
    _("Can take a lock away from its holder"),
    _("Can open a sale before its time"),
    _("Can pause and resume a sale"),
    _("Can close a sale for good"),
    _("Can restock and adjust the stock of a sale"),
    _("Can put dead letters back in line"),
    _("Can discard dead letters"),
    _("Can have a sale's stores compared and mended"),
    _("Can retire a sale that is over"),
    _("Can cancel a held order"),
    _("Can refund a paid order"),
    _("Can void orders before shipping, and look for what belongs together"),
    _("Can revoke the tokens of a network in a sale"),
    _("Can make access codes for a sale"),
    _("Can send an order's link to its buyer, and delete their address"),
)
# The columns of the exports for spreadsheets; a reader of English reads the names themselves.
COLUMNS = (
    _("order_number"), _("request_id"), _("sale"), _("buyer"), _("state"), _("units"), _("unit_price"), _("amount"),
    _("currency"), _("decided_at"), _("changed_at"), _("changed_by"), _("reason"), _("day"), _("units_sold"),
    _("units_refunded"), _("taken"), _("refunded"), _("revenue"),
)  # fmt: skip
