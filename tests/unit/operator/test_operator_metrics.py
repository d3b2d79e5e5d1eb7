"""The operator's metrics: reconciliations, the conditions of resources, and the port at which Prometheus reads them."""

from __future__ import annotations

import asyncio
from typing import Any

import aiohttp
import pytest
from prometheus_client.parser import text_string_to_metric_families

from tidelog_operator.conditions import Outcome, Refusal
from tidelog_operator.metrics import METRICS, OperatorMetrics
from tidelog_operator.metrics_port import MetricsPort
from tidelog_operator.reconciliation import reconcile_once


class OneTopic:
    """An API server with one topic."""

    async def get(self, kind: str, name: str) -> dict[str, Any]:
        return {"metadata": {"name": name, "generation": 1}}

    async def set_status(self, kind: str, name: str, status: dict[str, Any]) -> None:
        pass


def reconcile(metrics: OperatorMetrics, name: str, outcome: Outcome | Refusal) -> None:
    async def give(_: object) -> Outcome:
        if isinstance(outcome, Refusal):
            raise outcome
        return outcome

    asyncio.run(reconcile_once(OneTopic(), metrics, "TidelogTopic", name, give))  # type: ignore[arg-type]


def scrape(metrics: OperatorMetrics) -> dict[tuple[str, ...], float]:
    """Return the operator's samples, by name and the values of labels, as Prometheus reads them."""

    async def read() -> str:
        port = MetricsPort(metrics, "127.0.0.1", 0)
        try:
            address = f"http://127.0.0.1:{await port.open()}/metrics"
            async with aiohttp.ClientSession() as session, session.get(address) as response:
                assert response.status == 200
                return await response.text()
        finally:
            await port.close()

    families = text_string_to_metric_families(asyncio.run(read()))
    samples = (each for family in families if family.name.startswith("tidelog_") for each in family.samples)
    return {(each.name, *each.labels.values()): each.value for each in samples}


@pytest.fixture
def metrics() -> OperatorMetrics:
    return OperatorMetrics()


def test_reconciliations_count_by_kind_and_reason_and_take_time(metrics: OperatorMetrics) -> None:
    reconcile(metrics, "a", Outcome(True, "Ready", "done"))
    reconcile(metrics, "a", Outcome(True, "Ready", "done"))
    reconcile(metrics, "b", Refusal("PartitionsRefused", "fewer"))
    found = scrape(metrics)
    assert found["tidelog_operator_reconciliations_total", "TidelogTopic", "Ready"] == 2
    assert found["tidelog_operator_reconciliations_total", "TidelogTopic", "PartitionsRefused"] == 1
    assert found["tidelog_operator_reconciliation_duration_seconds_count", "TidelogTopic"] == 3


def test_resources_count_once_by_their_last_condition_until_they_are_gone(metrics: OperatorMetrics) -> None:
    reconcile(metrics, "a", Refusal("ClusterRefused", "no"))
    reconcile(metrics, "a", Outcome(True, "Ready", "done"))
    reconcile(metrics, "b", Outcome(True, "Ready", "done"))
    name = "tidelog_operator_resources"
    assert {k: v for k, v in scrape(metrics).items() if k[0] == name} == {(name, "TidelogTopic", "true", "Ready"): 2}
    metrics.forget("TidelogTopic", "b")
    assert scrape(metrics)[name, "TidelogTopic", "true", "Ready"] == 1


def test_every_declared_metric_is_served(metrics: OperatorMetrics) -> None:
    reconcile(metrics, "a", Outcome(True, "Ready", "done"))
    metrics.restarted("node")
    metrics.unanswered("Tidelog")
    names = {key[0] for key in scrape(metrics)}
    assert all(any(name.startswith(each.family_name) for name in names) for each in METRICS)
    assert all(any(name.startswith(each.family_name) for each in METRICS) for name in names)
