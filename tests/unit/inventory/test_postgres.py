"""An array literal is built of plain signs only: what means something in a literal is refused. No server."""

from __future__ import annotations

import pytest

from inventory.postgres import array


def test_words_and_numbers_become_a_literal() -> None:
    assert array(["1f-aB_9", "NULL", 15, "99.00"]) == "{1f-aB_9,NULL,15,99.00}"
    assert array([]) == "{}"


@pytest.mark.parametrize("sign", ['"', "{", "}", "\\", " ", "'", "\n", "é", "\u0660", "\x00"])
def test_a_sign_with_a_meaning_is_refused(sign: str) -> None:
    with pytest.raises(ValueError, match="plain letters"):
        array(["good", f"a{sign}b"])
