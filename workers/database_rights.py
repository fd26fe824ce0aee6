"""Says what each kind of process may do to each table, and grants it after every migration to the roles that exist.
Never makes a role (docker/postgres-role.sh does), and never grants what is not said here.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from django.db import connections, transaction
from psycopg import sql

KINDS = ("web", "settler", "expirer", "payments", "reconciler", "mailer", "notary")
ACTS = ("SELECT", "INSERT", "UPDATE", "DELETE")

ALL = " ".join(KINDS)
_ENDING = "(available held sold version)"
_ORDER = "(state actor reason changed_at)"
_OWN = ("web",) * 4
_PROVIDER = ("web payments",) * 3 + ("",)
_MAILS = "post_office_"
# table → who may SELECT, INSERT, UPDATE and DELETE; in brackets the only columns. Rows that are written once are
# updated and deleted by nobody.
RIGHTS: dict[str, tuple[str, str, str, str]] = {
    "inventory_stock": (
        "web settler expirer payments reconciler notary",
        "web",
        "web(total available held sold version) settler(available held fence version) "
        f"expirer{_ENDING} payments{_ENDING}",
        "",
    ),
    "inventory_stockmovement": (
        "web settler expirer payments reconciler",
        "web settler expirer payments",
        "",
        "",
    ),
    "inventory_decision": ("web reconciler", "", "", ""),
    "inventory_change": ("web reconciler", "", "", ""),
    "inventory_payment": ("web reconciler", "", "", ""),
    "inventory_line": ("web reconciler", "", "", ""),
    "inventory_load": ("web reconciler", "", "", ""),
    "shop_product": (ALL, "web", "web", "web"),
    # Inserting an order locks its sale against deletion, which needs the right to update some column of it.
    "shop_sale": (ALL, "web", "web settler(ordinal_base) reconciler(ordinal_base retired_at revoked_networks)", ""),
    "shop_saleterms": (ALL, "web", "", ""),
    "shop_accesscode": ("web reconciler(id sale_id)", "web", "web(left)", ""),
    "shop_listedemail": ("web reconciler", "web", "", "web reconciler"),
    "shop_codeuse": ("web reconciler(id code_id)", "web", "", "web reconciler"),
    "shop_order": (
        ALL,
        "web settler",
        f"web{_ORDER} settler(ordinal) expirer{_ORDER} payments{_ORDER}",
        "",
    ),
    "shop_orderevent": ("web payments reconciler mailer notary", "web settler expirer payments", "", ""),
    "shop_payment": (
        "web payments reconciler",
        "web",
        "web(state reason changed_at card) payments(state reason changed_at card) reconciler(card)",
        "",
    ),
    "shop_paymentnotice": ("web payments reconciler(id received_at)", "web payments", "", "reconciler"),
    "shop_salesample": ("web reconciler", "reconciler", "reconciler(until)", "reconciler"),
    "shop_staffact": ("web reconciler(id at)", "web reconciler", "", ""),
    "shop_ticketlink": ("web mailer", "web", "web", ""),
    "shop_contact": (
        "web mailer reconciler(id created_at)",
        "web",
        "web mailer(told_event is_over is_warned)",
        "reconciler",
    ),
    "shop_deliveryaddress": ("web reconciler(id request_id changed_at)", "web", "web", "web reconciler"),
    "shop_termstemplate": _OWN,
    "shop_failed_logins": ("web reconciler(cache_key expires)", "web", "web", "web reconciler"),
    "salelog_salelog": ("web notary", "notary", "notary", ""),
    "salelog_tile": ("web notary", "notary", "notary", ""),
    # Triggers write it, as the owner of the tables.
    "salelog_lineevent": ("notary", "", "", ""),
    "salelog_reading": ("notary", "", "notary", ""),
    "sandbox_charge": _PROVIDER,
    "sandbox_event": _PROVIDER,
    "stripe_checkoutsession": ("web payments reconciler(id reference)", "web payments", "web payments", "reconciler"),
    "auth_user": _OWN,
    "auth_user_groups": _OWN,
    "auth_user_user_permissions": _OWN,
    "auth_group": _OWN,
    "auth_group_permissions": _OWN,
    "auth_permission": ("web", "", "", ""),
    "axes_accessattempt": _OWN,
    "axes_accessattemptexpiration": _OWN,
    "axes_accessfailurelog": _OWN,
    "axes_accesslog": _OWN,
    "django_admin_log": ("web reconciler(id action_time)", "web", "", "reconciler"),
    "django_content_type": ("web", "", "", ""),
    "django_migrations": (ALL, "", "", ""),
    "django_session": ("web reconciler(session_key expire_date)", "web", "web", "web reconciler"),
    "otp_static_staticdevice": _OWN,
    "otp_static_statictoken": _OWN,
    "otp_totp_totpdevice": _OWN,
    "passkeys_passkey": _OWN,
    f"{_MAILS}attachment": ("web mailer", "web", "", "web"),
    f"{_MAILS}attachment_emails": ("web mailer reconciler(email_id)", "web", "", "web reconciler"),
    f"{_MAILS}email": ("web mailer reconciler(id created)", "web mailer", "mailer", "web reconciler"),
    f"{_MAILS}emailtemplate": ("web mailer", "", "", ""),
    f"{_MAILS}log": ("web mailer reconciler(email_id)", "mailer", "", "web mailer reconciler"),
}
# What runs as the owner of the tables, and who may call it: it deletes by age what its caller may not touch.
FUNCTIONS = {
    "shop_forget_networks(bigint, integer)": "reconciler",
    "shop_forget_buyers(bigint, integer, text, integer)": "reconciler",
    "shop_forget_acts(integer, integer)": "reconciler",
}
HOLDER = re.compile(r"(\w+)(?:\(([\w ]+)\))?")


def role_of(kind: str) -> str:
    """Return the role as which processes of `kind` log in."""
    return f"fairdrop_{kind}"


def holders(cell: str) -> Iterator[tuple[str, list[str]]]:
    """Yield each kind of process that a cell of RIGHTS names, with its columns; none: all of them."""
    for found in HOLDER.finditer(cell):
        yield found[1], (found[2] or "").split()


def grant_rights(*, using: str = "default", **_: Any) -> None:
    """Take every right from each role of a kind that exists, and grant what RIGHTS says. Needs the tables' owner."""
    with transaction.atomic(using=using), connections[using].cursor() as cursor:
        cursor.execute("SELECT rolname FROM pg_roles WHERE rolname = ANY(%s)", [[role_of(kind) for kind in KINDS]])
        roles = {name for (name,) in cursor.fetchall()}
        if not roles:
            return
        cursor.execute("SELECT relname FROM pg_class WHERE relnamespace = current_schema()::regnamespace")
        tables = {name for (name,) in cursor.fetchall()}
        cursor.execute("SELECT current_schema()")
        (schema,) = cursor.fetchone()
        for role in sorted(roles):
            names = {"schema": sql.Identifier(schema), "role": sql.Identifier(role)}
            cursor.execute(sql.SQL("REVOKE ALL ON ALL TABLES IN SCHEMA {schema} FROM {role}").format(**names))
            cursor.execute(sql.SQL("GRANT USAGE ON SCHEMA {schema} TO {role}").format(**names))
        for table in RIGHTS.keys() & tables:
            for statement in _grants(table, roles=roles):
                cursor.execute(statement)
        for function, kind in FUNCTIONS.items():
            cursor.execute("SELECT to_regprocedure(%s) IS NOT NULL", [function])
            if cursor.fetchone()[0] and role_of(kind) in roles:
                words = {"function": sql.SQL(function), "role": sql.Identifier(role_of(kind))}
                cursor.execute(sql.SQL("GRANT EXECUTE ON FUNCTION {function} TO {role}").format(**words))


def _grants(table: str, *, roles: set[str]) -> Iterator[sql.Composable]:
    for act, cell in zip(ACTS, RIGHTS[table], strict=True):
        for kind, columns in holders(cell):
            if role_of(kind) in roles:
                only = (
                    sql.SQL("({})").format(sql.SQL(", ").join(map(sql.Identifier, columns))) if columns else sql.SQL("")
                )
                yield sql.SQL("GRANT {act} {only} ON {table} TO {role}").format(
                    act=sql.SQL(act), only=only, table=sql.Identifier(table), role=sql.Identifier(role_of(kind))
                )  # fmt: skip
