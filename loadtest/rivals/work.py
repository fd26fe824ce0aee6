"""`python -m loadtest.rivals.work NAME SALE …`: runs one worker of a rival until it is ended.
Never restarts anything.
"""

from __future__ import annotations

import os
import sys

# What a worker writes when it has begun.
READY = "ready"


def main() -> None:
    """Run the command."""
    os.environ["DJANGO_SETTINGS_MODULE"] = "loadtest.rivals.lean_settings"
    import django

    django.setup()
    # Only now: models need the settings.
    from loadtest.rivals.strategies import RIVALS

    name, *sales = sys.argv[1:]
    print(READY, flush=True)
    RIVALS[name].work(sales)


if __name__ == "__main__":
    main()
