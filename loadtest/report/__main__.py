"""The command: python -m loadtest.report FOLDER. Holds no logic."""

from __future__ import annotations

import sys
from pathlib import Path

from loadtest.report import NoRun, write_report


def main(words: list[str]) -> int:
    """Write the report of a run; return 2 when there is none to report."""
    if len(words) != 1:
        print("usage: python -m loadtest.report FOLDER (one that has a verdict.json)", file=sys.stderr)
        return 2
    try:
        print(write_report(Path(words[0])))
    except NoRun as error:
        print(error, file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
