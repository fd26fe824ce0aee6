"""Reads a page of metrics with the library's own parser, as Prometheus would. Asks nobody."""

from __future__ import annotations

from prometheus_client.parser import text_string_to_metric_families


def samples_of(text: str) -> dict[str, float]:
    """Return every sample of a page as `name{values}`, the values of its labels in the order of their names."""
    return {
        f"{sample.name}{{{','.join(sample.labels.values())}}}": sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }
