"""A flood ends with the verifier of public logs, which reads every ticket that buyers were given. Needs no server."""

from __future__ import annotations

from pathlib import Path
from typing import cast

from loadtest.record.tickets import FILE_PREFIX, TicketWriter, clear_tickets, read_tickets
from loadtest.run.public_logs import check_log
from loadtest.shop_api import ShopApi
from loadtest.verify.__main__ import all_tickets, recorded
from loadtest.verify.signed_log import SLUG, SignedLog, write
from loadtest.verify.tamperings import Leaves, replace_winner


class Shop:
    """Serves one log."""

    def __init__(self, leaves: Leaves) -> None:
        self.fetch = SignedLog(write(leaves)).get


def checked(leaves: Leaves, *, folder: Path) -> tuple[bool, str]:
    return check_log(cast("ShopApi", Shop(leaves)), SLUG, audit=None, folder=folder)


def keep(folder: Path, tickets: list[str]) -> None:
    writer = TicketWriter(folder)
    for ticket in tickets:
        writer.add(ticket, sale=SLUG)
    writer.close()
    writer.add("fdt2.too.late", sale=SLUG)


def test_every_ticket_of_a_flood_is_checked(tmp_path: Path) -> None:
    tickets = all_tickets(recorded())
    keep(tmp_path, [*tickets, tickets[0]])  # one was given twice
    is_sound, text = checked(recorded(), folder=tmp_path)
    assert is_sound, text
    assert f"{len(tickets) + 1} tickets" in text


def test_a_place_that_was_given_to_another_is_named(tmp_path: Path) -> None:
    keep(tmp_path, all_tickets(recorded()))
    is_sound, text = checked(replace_winner(recorded()), folder=tmp_path)
    assert (is_sound, "ticket: " in text) == (False, True)
    clear_tickets(tmp_path)
    assert checked(replace_winner(recorded()), folder=tmp_path)[0]  # the control: nobody kept a ticket


def test_what_proves_nothing_and_what_was_never_finished_is_left_out(tmp_path: Path) -> None:
    ticket = all_tickets(recorded())[0]
    keep(tmp_path, ["id.buyer.1.2.3.4.signature", ticket])
    (file,) = tmp_path.glob(f"{FILE_PREFIX}*.txt")
    with file.open("a") as end:
        end.write(f"other {ticket}\n{SLUG} {ticket[:50]}")
    assert [*read_tickets(tmp_path, sale=SLUG)] == [ticket]
    assert [*read_tickets(tmp_path, sale="other")] == [ticket]
