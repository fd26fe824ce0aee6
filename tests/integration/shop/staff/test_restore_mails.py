"""After a restore the command that operators are told deletes the mails that their readers may have already."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from django.core.management import call_command

from shop.orders import mails
from shop.staff.restore import traces
from tests.support import paying
from tests.support.shopkeeping import make_sale

pytestmark = pytest.mark.usefixtures("shop_database")

RESTORING = (Path(__file__).resolve().parents[4] / "docs" / "restoring.md").read_text()


def test_the_command_that_spares_buyers_a_second_mail_deletes_what_waits(new_sku: Callable[[], str]) -> None:
    """The control: until then it waits."""
    (name,) = paying.hold(make_sale(new_sku(), units=1), buyers=1)
    mails.keep_address(name, "ada@shop.example", language="en", root="http://127.0.0.1")
    assert name in traces.find_mails().waiting
    (code,) = re.findall(r'`python manage\.py shell -c "([^"`]+)"`', RESTORING)
    call_command("shell", command=code)
    assert name not in traces.find_mails().waiting
    mails.forget_address(name)
