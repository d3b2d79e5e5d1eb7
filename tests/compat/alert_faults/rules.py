"""The alert rules with shorter times, so that a test need not wait for minutes.

Expressions, labels and thresholds are those of ``alerts.yaml``. Each range such as ``[10m]`` is ``TIME_SCALE`` times
shorter, and ``for`` is a second. ``THRESHOLDS`` has everything else that differs.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

import yaml
from programs import load_program

monitored_cluster = load_program(Path(__file__).parents[3] / "deploy" / "monitoring" / "monitored_cluster.py")
ALERTS: Final[Path] = monitored_cluster.ALERTS
TIME_SCALE: Final = 30
THRESHOLDS: Final[Mapping[str, tuple[str, str]]] = MappingProxyType(
    {
        # The forecast is a time as well.
        "TidelogDiskFillsUp": ("4 * 3600", "4 * 120"),
        # The node shares the processors with its load, its peers and Prometheus, and gets no core of its own.
        "TidelogEventLoopBusy": ("> 0.9", "> 0.4"),
    }
)
"""Thresholds that a test cannot reach, by alert: the text in ``alerts.yaml``, and that of the tests."""
_SECONDS: Final = {"m": 60, "h": 3600}


def quick_rules() -> str:
    """Return ``alerts.yaml`` with the shorter times and the thresholds of the tests."""
    groups: dict[str, Any] = yaml.safe_load(ALERTS.read_text())
    for rule in groups["groups"][0]["rules"]:
        known, scaled = THRESHOLDS.get(rule["alert"], ("", ""))
        assert known in rule["expr"], f"{rule['alert']} has no {known}"
        rule["expr"] = re.sub(r"\[(\d+)([mh])\]", _shorter, rule["expr"].replace(known, scaled))
    text: str = yaml.safe_dump(groups, sort_keys=False, width=1_000)
    return str(monitored_cluster.without_delays(text))


def _shorter(found: re.Match[str]) -> str:
    return f"[{int(found[1]) * _SECONDS[found[2]] // TIME_SCALE}s]"
