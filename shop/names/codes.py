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
# What became of a provider's notice, and other reasons (those of orders: inventory/states.py).
REASONS = (
    _("over and settled"), _("nothing to change"), _("card declined"), _("card declined, at high risk"),
    _("the demo's first delivery"), _("its two minutes are over"), _("no such account"), _("not of the staff"),
    _("while enrolling"), _("asked again"), _("termstemplate"), _("stockmovement"), _("first units"),
    _("not decided"), _("nothing"), _("buyer_asked"), _("faulty"), _("not_deliverable"), _("sale_called_off"),
    _("this is not an e-mail address"), _("an e-mail address has at most 254 characters"),
    _("an e-mail address with quotes or of a machine's number is not taken"),
    _("suspected_fraud"), _("our_mistake"), _("being handed on"), _("the database is away or busy"),
    _("a fault of the program, which is in its log"), _("what Redis says of it is damaged: ask again"),
)  # fmt: skip
# What an audit counts.
COUNTS = (
    _("total"), _("put_in"), _("available"), _("held"), _("sold"), _("fence"), _("decided"), _("orders_held"),
    _("orders_paid"), _("orders_expired"), _("orders_cancelled"), _("orders_sold_out"), _("orders_refused"),
    _("orders_refunded"), _("units_held"), _("last_seq"), _("queued"), _("waiting"), _("waitlisted"), _("in_flight"),
    _("admitted"), _("dead_letters"),
)  # fmt: skip
# The columns of the exports for spreadsheets; a reader of English reads the names themselves.
COLUMNS = (
    _("order_number"), _("request_id"), _("sale"), _("buyer"), _("state"), _("units"), _("unit_price"), _("amount"),
    _("currency"), _("decided_at"), _("changed_at"), _("changed_by"), _("reason"), _("day"), _("units_sold"),
    _("units_refunded"), _("taken"), _("refunded"), _("revenue"),
)  # fmt: skip
