"""Scrapes of a monitoring port."""

from __future__ import annotations

import urllib.error
import urllib.request
from collections.abc import Iterator
from typing import Any

from prometheus_client.parser import text_string_to_metric_families

from tidelog.testing import FakeCluster

MONITORED = {"metrics.listeners": "HTTP://127.0.0.1:0"}
TIMEOUT_S = 20


class Scrape:
    """The families of a scrape."""

    def __init__(self, text: str) -> None:
        self.families = {family.name: family for family in text_string_to_metric_families(text)}

    def value(self, name: str, /, **labels: str) -> float:
        """Return the sum of the samples with a name and labels, 0 without one."""
        return sum(sample.value for sample in self._samples(name) if labels.items() <= sample.labels.items())

    def labels(self, name: str, /, label: str) -> set[str]:
        """Return the values of a label."""
        return {sample.labels[label] for sample in self._samples(name)}

    def _samples(self, name: str) -> Iterator[Any]:
        for family in self.families.values():
            yield from (sample for sample in family.samples if sample.name == name)


def ask(
    url: str, *, method: str = "GET", context: Any = None, timeout_s: float = TIMEOUT_S, **headers: str
) -> tuple[int, str, str]:
    """Return the status, the content type and the text of an answer."""
    request = urllib.request.Request(url, method=method, headers=headers)
    try:
        with urllib.request.urlopen(request, timeout=timeout_s, context=context) as response:
            return response.status, response.headers["Content-Type"], response.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.headers["Content-Type"], error.read().decode()


def scrape(port: int) -> Scrape:
    """Return what a monitoring port of this machine says."""
    status, _, text = ask(f"http://127.0.0.1:{port}/metrics")
    assert status == 200, text
    return Scrape(text)


def node_port(cluster: FakeCluster) -> int:
    """Return the monitoring port of the node in memory."""
    node = cluster._running._node
    assert node is not None
    return node.monitor.ports["HTTP"]


def controller_port(cluster: FakeCluster) -> int:
    """Return the monitoring port of the controller in memory."""
    controller = cluster._running._controller
    assert controller is not None
    return controller.monitor.ports["HTTP"]
