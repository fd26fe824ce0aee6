"""What PostgreSQL is asked while a sale sells names the SKU, its stock or the sale: tables can be distributed by SKU.
Read from the server's own log: its extension with statistics of statements is not in every package.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import psycopg
import pytest
from django.conf import settings
from django.db import connection, connections
from psycopg import sql

from shop.payments import rows
from shop.sales.catalogue import SaleCard
from tests.support.http_calls import Buyer, Caller
from tests.support.paying import begin, happen, hear
from tests.support.servers.shop_processes import shop_process
from tests.support.shopkeeping import make_sale
from tests.support.waiting import wait_until
from workers.embedded.postgres import SUPERUSER

# A row for each purchase, or a row that each purchase changes: the tables that would lie on many nodes.
HOT = re.compile(r"\b(inventory_stock|inventory_stockmovement|shop_order|shop_orderevent|shop_payment)\b")
# Compared with a value or with an array of them, not with another column.
VALUE = r"(?:\(|ANY ?\(|ARRAY|\[|\s)*(?:'|\$\d|\d)"
CARRIED = (
    re.compile(rf"\b(?:sku|stock_id|sale_id) ?(?:=|IN) ?{VALUE}", re.IGNORECASE),
    re.compile(rf"\b(?:inventory_stock|shop_sale)\.id ?(?:=|IN) ?{VALUE}", re.IGNORECASE),
    re.compile(rf"^UPDATE inventory_stock SET [^;]* WHERE id = {VALUE}"),  # noqa: S608 - compared with a log, never run
    re.compile(r"^INSERT INTO \w+ (?:AS \w+ )?\([^)]*\b(?:sku|stock_id|sale_id)\b[^)]*\)"),
    # The sales of a batch and their buyers come as two arrays.
    re.compile(r"o\.sale_id = asked\.sale_id"),
)
# What names SKUs to leave them out.
LEFT_OUT = re.compile(r"<> ALL\(ARRAY\(SELECT .*?\)\)")
# What names none of them, and why it may.
EXCEPTIONS = {
    rf"\brequest_id = {VALUE}": "a request id begins with its sale, so the sale could be added from it",
    r"\b(?:shop_order\.id|shop_payment\.id|order_id) (?:= |IN \()\d|^INSERT INTO shop_payment ": "its order is known",
    r"\breference = '": "a provider names a charge by its reference alone, before a lock is taken",
    r"\bbuyer = '": "how often a buyer was declined, in whatever sale: once for each payment that begins",
    r"\bshop_sale\.retired_at IS NULL": "a process looks at all sales, however many buy",
    r"STATEMENT_TIMESTAMP\(\) -|ORDER BY RANDOM\(\)": "a worker looks for what is due in all sales, however many buy",
}
SETTLING = ("UPDATE inventory_stock SET fence", "INSERT INTO shop_order ", "INSERT INTO inventory_stockmovement ")
BARE = "SELECT count(*) FROM shop_order WHERE state = 'held'"
ENTRY = re.compile(r"^\d{4}-\d\d-\d\d [\d:.]+ \w+ \[\d+\] (\w+):  (.*)$")
BUYERS = 6
WORKERS = ("settler", "expirer", "payments")


@contextmanager
def logged_statements() -> Iterator[list[str]]:
    """Let PostgreSQL write down what new connections to the test database ask; the list is filled at the end."""
    folder, found = Path(os.environ["FAIRDROP_STATE_DIR"]), []
    address = urlsplit(os.environ["DATABASE_URL"])
    if not (folder / "postgres-superuser.password").exists():
        pytest.skip("only the tests' own PostgreSQL lets a test read its log")
    password = (folder / "postgres-superuser.password").read_text().strip()
    change = sql.SQL("ALTER ROLE {} IN DATABASE {} {}")
    names = sql.Identifier(address.username or ""), sql.Identifier(connection.settings_dict["NAME"])
    with psycopg.connect(
        host=address.hostname, port=address.port, user=SUPERUSER, password=password, dbname="postgres", autocommit=True
    ) as superuser:
        begins = (folder / "postgres.log").stat().st_size
        superuser.execute(change.format(*names, sql.SQL("SET log_statement = 'all'")))
        connections.close_all()
        try:
            yield found
        finally:
            superuser.execute(change.format(*names, sql.SQL("RESET log_statement")))
            connections.close_all()
            with (folder / "postgres.log").open() as log:
                log.seek(begins)
                found += statements_of(log.read())


def statements_of(log: str) -> list[str]:
    """Return each statement of a log of PostgreSQL once, in one line and without quoted names."""
    entries: list[str] = []
    for line in log.splitlines():
        if entry := ENTRY.match(line):
            entries.append(entry[2] if entry[1] == "LOG" else "")
        elif entries:
            entries[-1] += " " + line
    asked = (re.match(r"(?:statement|execute [^:]*): (.*)", re.sub(r"\s+", " ", each)) for each in entries)
    return list(dict.fromkeys(each[1].strip().replace('"', "") for each in asked if each))


def without_sku(statements: list[str]) -> list[str]:
    """Return each statement on a hot table that names no SKU, stock or sale."""
    hot = [each for each in statements if HOT.search(each)]
    return [each for each in hot if not any(part.search(LEFT_OUT.sub("", each)) for part in CARRIED)]


def excused(statement: str) -> list[str]:
    """Return the exceptions that name a statement."""
    return [part for part in EXCEPTIONS if re.search(part, statement, re.IGNORECASE)]


@pytest.mark.parametrize(
    ("statement", "bare"),
    [
        (BARE, True),
        ("SELECT 1 FROM shop_order o JOIN shop_sale s ON s.id = o.sale_id WHERE o.seq = 7", True),
        (
            "UPDATE shop_order SET state = 'paid' WHERE sale_id <> ALL(ARRAY(SELECT id FROM s WHERE sku = ANY('{}')))",
            True,
        ),
        ("INSERT INTO shop_order (request_id, seq) VALUES ('1-a', 7)", True),
        ("SELECT 1 FROM shop_order WHERE sale_id = 7 AND state = 'held'", False),
        ("SELECT 1 FROM inventory_stock WHERE sku = $1", False),
        ("UPDATE inventory_stock SET held = held + 1 WHERE id = 3 AND fence = 4", False),
        ("INSERT INTO inventory_stockmovement (stock_id, kind) VALUES (7, 'hold')", False),
        ("SELECT 1 FROM shop_product", False),
    ],
)
def test_a_statement_without_its_sku_would_be_found(statement: str, bare: bool) -> None:
    """The control."""
    assert bool(without_sku([statement])) is bare
    assert excused(statement) == []


def test_a_payment_that_is_late_names_its_sale() -> None:
    """None comes in the sale below, unless the payments worker finds one of another test."""
    assert without_sku([re.sub(r"%\(\w+\)s", "7", rows.CHANGE_ORDER).strip()]) == []


def test_each_hot_statement_names_its_sku(
    process_environment: dict[str, str], tmp_path: Path, new_sku: Callable[[], str]
) -> None:
    """The control: one that does not, asked meanwhile, is found in the same log. No exception is there for nothing."""
    lasting, short = make_sale(new_sku(), units=4), make_sale(new_sku(), units=1, hold_seconds=1)
    # A busy machine may keep Redis from answering.
    environment = {**process_environment, "FAIRDROP_REDIS_TIMEOUT_SECONDS": "30"}
    with logged_statements() as statements:
        with shop_process(environment, folder=tmp_path, workers=WORKERS) as shop:
            sell(shop, lasting, short)
        with connection.cursor() as cursor:
            cursor.execute(BARE)
    bare = {each: excused(each) for each in without_sku(statements)}
    assert [each for each, parts in bare.items() if not parts] == [BARE]
    assert {part for parts in bare.values() for part in parts} == set(EXCEPTIONS)
    assert [part for part in SETTLING if not any(each.startswith(part) for each in statements)] == []


def sell(shop: Caller, lasting: SaleCard, short: SaleCard) -> None:
    """Let buyers ask, look at tickets, pay, try too many cards, give up, be late, and hear that nothing is left."""
    buyers = [shop.new_buyer() for _ in range(BUYERS)]
    asked = {buyer: place_of(shop, lasting, buyer) for buyer in buyers}
    late = place_of(shop, short, buyers[0])
    wait_until(lambda: state_of(shop, asked[buyers[0]], buyers[0]) == "held")
    wait_until(lambda: state_of(shop, asked[buyers[2]], buyers[2]) == "held")
    payment = begin(asked[buyers[0]])
    assert hear(happen(payment, "captured")) == "paid"
    for _ in range(settings.MAX_DECLINED_PER_HOLD):
        assert hear(happen(begin(asked[buyers[2]]), "declined")) == "declined"
    cancelled = shop.call("POST", f"/api/v1/requests/{asked[buyers[1]]}/cancel", headers=buyers[1].headers)
    assert cancelled.status == 200, cancelled.body
    for buyer, name in asked.items():
        assert shop.get(f"/requests/{name}/", headers={"Cookie": f"buyer={buyer.token}"}).status == 200
    wait_until(lambda: state_of(shop, late, buyers[0]) == "expired")


def place_of(shop: Caller, card: SaleCard, buyer: Buyer) -> str:
    """Let a buyer ask, as soon as the shop knows the sale; return the request id."""
    # 200: the answer of the ask that was let in had been lost.
    answer = wait_until(lambda: told if (told := shop.ask(card.slug, buyer)).status in (200, 202) else None)
    return str(answer.json()["request_id"])


def state_of(shop: Caller, name: str, buyer: Buyer) -> str:
    return str(shop.status(name, buyer).json()["state"])
