"""A page of metrics, read as Prometheus reads it."""

from __future__ import annotations

from prometheus_client.parser import text_string_to_metric_families

from penstock.server.metrics import Metrics

Samples = dict[tuple[str, tuple[tuple[str, str], ...]], float]


class Board:
    """The metrics of a server, as of the last look."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self._samples: Samples = {}

    async def look(self) -> None:
        text = (await self._metrics.page()).decode()
        self._samples = {
            (sample.name, tuple(sorted(sample.labels.items()))): sample.value
            for family in text_string_to_metric_families(text)
            for sample in family.samples
        }

    def value(self, name: str, **labels: str) -> float | None:
        return self._samples.get((name, tuple(sorted(labels.items()))))

    def labels(self, name: str, label: str) -> set[str]:
        return {dict(labels)[label] for found, labels in self._samples if found == name}
