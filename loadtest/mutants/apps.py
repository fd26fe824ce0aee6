"""Switches one guard off in a process that has the mutants' settings. Does nothing else."""

import os

from django.apps import AppConfig


class MutantsConfig(AppConfig):
    name = "loadtest.mutants"

    def ready(self) -> None:
        """Apply the mutant before the process serves anybody."""
        from loadtest.mutants.guards import switch_off  # here: it needs the models

        switch_off(os.environ.get("FAIRDROP_MUTANT", ""))
