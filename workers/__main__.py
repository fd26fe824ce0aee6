"""`python -m workers COMMAND`, or `fairdrop COMMAND` where the wheel is installed: what manage.py does in a checkout.
Holds no logic of its own.
"""

from __future__ import annotations

import os
import sys

from shop.logs import write_failures


def main() -> None:
    """Run one administrative command of the shop."""
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "shop.settings")
    if sys.argv[1:2] in (["run_web"], ["run_worker"]):  # what they write is read by programs, from the first line on
        write_failures()
    try:
        from django.core.management import execute_from_command_line
    except ImportError as error:
        raise SystemExit("Django is not installed here: run `make demo` or `make test`, which make .venv.") from error
    execute_from_command_line(sys.argv)


if __name__ == "__main__":
    main()
