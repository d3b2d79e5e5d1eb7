"""The table of alerts and faults is complete. ``test_alerts.py`` causes the faults."""

from __future__ import annotations

import yaml
from compat.alert_faults.cases import CASES
from compat.alert_faults.deployment import DEPLOYMENTS
from compat.alert_faults.rules import ALERTS, THRESHOLDS, TIME_SCALE, quick_rules


def test_every_alert_has_a_fault_and_every_deployment_a_case() -> None:
    names = {rule["alert"] for rule in rules_of(ALERTS.read_text())}
    assert {f"Tidelog{case.alert}" for case in CASES} == names
    assert {case.deployment for case in CASES} == set(DEPLOYMENTS)
    assert set(THRESHOLDS) <= names


def test_tests_change_times_and_declared_thresholds_of_alerts_alone() -> None:
    for rule, quick in zip(rules_of(ALERTS.read_text()), rules_of(quick_rules()), strict=True):
        known, scaled = THRESHOLDS.get(rule["alert"], ("", ""))
        expected = rule["expr"].replace(known, scaled)
        for minutes in (5, 10, 15, 60):
            text = f"[{minutes}m]" if minutes < 60 else "[1h]"
            expected = expected.replace(text, f"[{minutes * 60 // TIME_SCALE}s]")
        assert quick == {**rule, "expr": expected, **({"for": "1s"} if "for" in rule else {})}


def rules_of(text: str) -> list[dict[str, str]]:
    loaded: list[dict[str, str]] = yaml.safe_load(text)["groups"][0]["rules"]
    return loaded
