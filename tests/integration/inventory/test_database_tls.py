"""TLS that DATABASE_URL asks for is asked for by Django's connections and by those of the workers. Real server."""

from __future__ import annotations

from unittest.mock import patch

import django.db
import psycopg
import pytest

from inventory import postgres

pytestmark = pytest.mark.usefixtures("shop_database")


@pytest.mark.parametrize("is_asked", [True, False])
def test_a_server_without_tls_is_refused_when_it_is_asked_for(is_asked: bool) -> None:
    """The control: without the word in the address both connect."""
    with patch.dict(django.db.connection.settings_dict["OPTIONS"], {"sslmode": "require"} if is_asked else {}):
        django_connection = django.db.connection.copy()
        if is_asked:
            with pytest.raises(psycopg.OperationalError, match="SSL"):
                postgres.connect()
            with pytest.raises(django.db.OperationalError, match="SSL"):
                django_connection.ensure_connection()
        else:
            postgres.connect().close()
            django_connection.ensure_connection()
            django_connection.close()
