"""`python -m workers COMMAND`, or `fairdrop COMMAND` where the wheel is installed: what manage.py does in a checkout.
Holds no logic of its own.
"""

from __future__ import annotations

import gc
import os
import sys

# A start makes about as many objects, of which nearly all stay. To look for circles every 700 took a tenth of it.
OBJECTS_BETWEEN_LOOKS = 100_000


def main() -> None:
    """Run one administrative command of the shop."""
    gc.set_threshold(OBJECTS_BETWEEN_LOOKS)
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "shop.settings")
    try:
        from django.core.management import execute_from_command_line
    except ImportError as error:
        raise SystemExit("Django is not installed here: run `make demo` or `make test`, which make .venv.") from error
    from shop.logs import write_failures

    if sys.argv[1:2] in (["run_web"], ["run_worker"]):  # what they write is read by programs, from the first line on
        write_failures()
    execute_from_command_line(sys.argv)


if __name__ == "__main__":
    main()
