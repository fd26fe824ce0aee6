#!/usr/bin/env python3
"""Runs every administrative command of the shop; holds no logic of its own."""

import os
import sys


def main() -> None:
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "shop.settings")
    try:
        from django.core.management import execute_from_command_line
    except ImportError as error:
        raise SystemExit("Django is not installed here: run `make demo` or `make test`, which make .venv.") from error
    execute_from_command_line(sys.argv)


if __name__ == "__main__":
    main()
