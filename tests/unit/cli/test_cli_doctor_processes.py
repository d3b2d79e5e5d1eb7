"""The doctor's rules about single processes: clocks, limits of the operating system, versions, file systems."""

from __future__ import annotations

from typing import Any

import pytest

from tidelog.admin import DirectoryState, FeatureLevels, ProcessDescription, ResourceUse
from tidelog_cli.health.doctor_rules import doctor_findings
from tidelog_cli.health.facts import ClusterFacts, ProcessFacts
from tidelog_cli.health.finding import Finding, Severity
from tidelog_cli.health.process_rules import CLOCK_LIMIT_S, process_findings

RESOURCES = (
    ResourceUse("open_files", 300, 65_536),
    ResourceUse("threads", 30, -1),
    ResourceUse("memory_maps", 400, 65_530),
)
DISK = DirectoryState("/data", False, 1_000, 500, 1_000, 900)
LEVELS = {"metadata.version": FeatureLevels(1, 4, 4)}


def process(process_id: int = 1, *, is_node: bool = True, **change: Any) -> ProcessFacts:
    well = {
        "software_version": "0.2.0",
        "clock_offset_s": 0.002,
        "clock_error_s": 0.001,
        "features": LEVELS,
        "resources": RESOURCES,
        "directories": (DISK,),
    }
    return ProcessFacts(process_id, is_node, ProcessDescription(**{**well, **change}))


def judged(*processes: ProcessFacts) -> list[Finding]:
    return process_findings(ClusterFacts("c1", processes=processes))


def clock(process_id: int, offset_s: float, error_s: float = 0.001) -> ProcessFacts:
    return process(process_id, clock_offset_s=offset_s, clock_error_s=error_s)


def test_processes_that_are_well_have_no_findings() -> None:
    processes = (process(1), process(2), process(1, is_node=False))
    assert judged(*processes) == []
    assert doctor_findings(ClusterFacts("c1", voters=None, processes=processes)) == []


@pytest.mark.parametrize(
    ("change", "severity", "subject", "text"),
    [
        ({"clock_offset_s": 1.5}, Severity.WARNING, "node 1", "1.500 s (± 0.001 s) ahead"),
        ({"clock_offset_s": -4.0, "clock_error_s": 0.25}, Severity.WARNING, "node 1", "4.000 s (± 0.250 s) behind"),
        ({"clock_error_s": 3.0}, Severity.INFO, "node 1", "to ± 3.0 s, the limit is 1 s"),
        ({"resources": (ResourceUse("open_files", 10, 1_024),)}, Severity.WARNING, "node 1", "only 1,024 files"),
        ({"resources": (ResourceUse("open_files", 800, 1_000),)}, Severity.WARNING, "node 1", "and 800 are in use"),
        ({"resources": (ResourceUse("memory_maps", 64_000, 65_530),)}, Severity.CRITICAL, "node 1", "64,000 are in"),
        ({"resources": (ResourceUse("threads", 96, 100),)}, Severity.CRITICAL, "node 1", "100 threads may run"),
        ({"directories": (DirectoryState("/d", True, 9, 9),)}, Severity.CRITICAL, "node 1, /d", "read-only"),
        ({"directories": (DirectoryState("/d", error="No such file"),)}, Severity.CRITICAL, "node 1, /d", "No such"),
        (
            {"directories": (DirectoryState("/d", False, 9, 9, 1_000, 20),)},
            Severity.CRITICAL,
            "node 1, /d",
            "2% of the file system's inodes is free",
        ),
    ],
)
def test_doctor_names_what_is_wrong_with_a_process(
    change: dict[str, Any], severity: Severity, subject: str, text: str
) -> None:
    [finding] = judged(process(1, **change), process(2))
    assert (finding.severity, finding.subject) == (severity, subject)
    assert text in finding.text
    assert finding.action
    assert finding.link == "docs/health.md#doctor"


def test_doctor_tells_that_a_process_gave_no_account() -> None:
    [finding] = judged(process(1), ProcessFacts(2, True, error="connection refused"))
    assert (finding.severity, finding.subject) == (Severity.WARNING, "node 2")
    assert "connection refused" in finding.text


def test_clock_within_the_error_of_the_round_trip_is_no_finding() -> None:
    assert judged(clock(1, CLOCK_LIMIT_S + 0.2, 0.3), clock(2, 0)) == []


def test_clock_of_this_machine_is_suspected_if_all_others_agree() -> None:
    [finding] = judged(clock(1, 3600.0), clock(2, 3600.2), clock(3, 3600.1))
    assert finding.subject == "this machine's clock"
    assert "3600.000 s (± 0.001 s) behind" in finding.text
    apart = judged(clock(1, 3600.0), clock(2, 3602.5))
    assert [finding.subject for finding in apart] == ["node 1", "node 2"]


def test_space_of_a_controllers_disk_counts_and_that_of_a_node_is_told_by_its_log_directories() -> None:
    full = (DirectoryState("/meta", False, 100, 10, -1, -1),)
    [finding] = judged(process(1, directories=full), process(1, is_node=False, directories=full))
    assert (finding.severity, finding.subject) == (Severity.WARNING, "controller 1, /meta")
    assert "10% of the disk is free" in finding.text


def test_limit_of_open_files_is_not_low_for_a_controller() -> None:
    assert judged(process(1, is_node=False, resources=(ResourceUse("open_files", 10, 1_024),))) == []


def test_mixed_versions_are_named_with_a_process_of_a_version_without_the_call() -> None:
    [finding] = judged(process(1), process(2, software_version="0.3.0"), ProcessFacts(3, True, is_older=True))
    assert finding.subject == "versions"
    assert "0.2.0 on node 1; 0.3.0 on node 2; an earlier version on node 3" in finding.text


def test_levels_that_processes_support_or_have_applied_differ() -> None:
    newer = {"metadata.version": FeatureLevels(1, 5, 4)}
    behind = {"metadata.version": FeatureLevels(1, 4, 3)}
    [supported] = judged(process(1), process(2, features=newer))
    assert "different levels of metadata.version: up to 4 on node 1; 5 on node 2" in supported.text
    [applied] = judged(process(1), process(2, features=behind))
    assert "applied different levels of metadata.version: 3 on node 2; 4 on node 1" in applied.text
    [unknown] = judged(process(1), process(2, features={}))
    assert "up to 0 on node 2; 4 on node 1" in unknown.text
