"""Writes a run's report: one HTML page that needs nothing alongside itself.
Never changes what a run left. Usage: python -m loadtest.report FOLDER
"""

from __future__ import annotations

from pathlib import Path

from loadtest.record.files import write_whole
from loadtest.report.index import REPORT_FILE
from loadtest.report.page import page_of
from loadtest.report.reading import NoRun, read_run

__all__ = ["REPORT_FILE", "NoRun", "write_report"]


def write_report(folder: Path) -> Path:
    """Write report.html into the folder of a run and return its path. Raises NoRun when there is no verdict."""
    path = folder / REPORT_FILE
    write_whole(path, page_of(read_run(folder)))
    return path
