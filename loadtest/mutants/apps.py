"""Switches one guard off in a process that has a mutant; shop/settings.py lets none but the tests' have one.
Does nothing else.
"""

from django.apps import AppConfig
from django.conf import settings


class MutantsConfig(AppConfig):
    name = "loadtest.mutants"

    def ready(self) -> None:
        """Apply the mutant before the process serves anybody."""
        from loadtest.mutants.guards import switch_off  # here: it needs the models

        switch_off(settings.MUTANT)
