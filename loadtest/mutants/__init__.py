"""Switches guards off, one at a time, to show that the verdict sees it. Never part of a shop that sells."""
