"""The static files of production, collected as an image holds them: scripts name each other by fingerprints.
Needs no server.
"""

from __future__ import annotations

import json
import posixpath
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from django.conf import settings
from django.core.management import call_command
from django.templatetags.static import static
from django.test import Client, override_settings

IMPORTED = re.compile(r"""(?:\bfrom|\bimport|\bimport\s*\(|\bnew URL\()\s*["'`](\.[^"'`]+)["'`]""")


@pytest.fixture(scope="module")
def collected(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Serve static files as production does; return the folder with them."""
    root = tmp_path_factory.mktemp("static")
    storages = {**settings.STORAGES, "staticfiles": {"BACKEND": "shop.static_files.StaticFilesWithFingerprints"}}
    with override_settings(STATIC_ROOT=root, STORAGES=storages, WHITENOISE_USE_FINDERS=False):
        call_command("collectstatic", "--noinput", verbosity=0)
        yield root


def imported_by(root: Path, name: str) -> list[str]:
    """Return the static files that a script imports, or starts as a worker, by the names that it writes."""
    folder = posixpath.dirname(name)
    return [posixpath.normpath(f"{folder}/{each}") for each in IMPORTED.findall((root / name).read_text())]


def test_every_import_names_a_file_with_a_fingerprint_that_is_kept_for_good(collected: Path) -> None:
    names: dict[str, str] = json.loads((collected / "staticfiles.json").read_text())["paths"]
    browser, found = Client(), set()
    for name in (each for each in names if each.startswith("shop/") and each.endswith(".js")):
        plain = imported_by(collected, name)
        imported = imported_by(collected, names[name])
        assert imported == [names[each] for each in plain], name
        for each in imported:
            answer = browser.head(f"/static/{each}")
            assert answer.status_code == 200, each
            assert "immutable" in answer["Cache-Control"], each
        found |= {(name, each) for each in plain}
    # The control: what pages import at once, what scripts import of it, and what is imported when it is wanted.
    assert found >= {
        ("shop/sale.js", "shop/fresh.js"),
        ("shop/log/place.js", "shop/log/note.js"),
        ("shop/log/note.js", "shop/log/path.js"),
        ("shop/ticket.js", "shop/alert.js"),
    }


def test_a_page_names_a_script_that_names_its_imports(collected: Path) -> None:
    script = (collected / static("shop/log/place.js").removeprefix("/static/")).read_text()
    assert f'from "./{posixpath.basename(static("shop/log/note.js"))}"' in script
    assert 'from "./note.js"' not in script
