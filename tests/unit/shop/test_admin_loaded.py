"""Which processes load the pages of the admin: those that serve or check them, and no worker."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.support.servers.shop_processes import ROOT
from tests.support.waiting import PATIENCE_SECONDS

LOADED = "import sys; print('shop.admin' in sys.modules, 'shop.urls' in sys.modules)"
# An admin that Django's checks refuse: it lists a field that its table does not have.
REFUSED = """
from django.contrib import admin
from inventory.models import Stock
class Wrong(admin.ModelAdmin):
    list_display = ["no_such_field"]
plain = admin.autodiscover
def with_a_wrong_one():
    plain()
    admin.site.unregister(Stock)
    admin.site.register(Stock, Wrong)
admin.autodiscover = with_a_wrong_one
from django.core.management import call_command
from django.core.management.base import SystemCheckError
try:
    call_command("check", tags=["admin"])
except SystemCheckError as error:
    print("admin.E108" in str(error))
"""


def said_by(code: str) -> str:
    """Return what a process of its own prints that sets Django up and runs `code`."""
    code = f"import django\ndjango.setup()\n{code}"
    return subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, env={**os.environ, "DJANGO_SETTINGS_MODULE": "shop.settings"},
        capture_output=True, text=True, timeout=PATIENCE_SECONDS, check=True,
    ).stdout.strip()  # fmt: skip


@pytest.mark.parametrize(
    ("loads", "said"),
    [
        ("import workers.management.commands.run_worker", "False False"),
        ("import shop.asgi", "True True"),
        ("from django.core.management import call_command; call_command('check', tags=['admin'])", "True False"),
    ],
    ids=["worker", "web", "check"],
)
def test_only_what_serves_or_checks_the_admin_loads_its_pages(loads: str, said: str) -> None:
    assert said_by(f"{loads}\n{LOADED}").splitlines()[-1] == said


def test_the_check_sees_an_admin_that_is_wrong() -> None:
    assert said_by(REFUSED) == "True"
