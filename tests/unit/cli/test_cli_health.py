"""The rules of the cluster's health and of the doctor."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tidelog_cli.health.doctor_rules import doctor_findings
from tidelog_cli.health.facts import (
    ClusterFacts,
    FeatureFacts,
    LogDirFacts,
    NodeFacts,
    PartitionFacts,
    TopicFacts,
    VoterFacts,
)
from tidelog_cli.health.finding import Finding, Severity, exit_code, named
from tidelog_cli.health.state_rules import health_findings

SETTINGS = {
    "unclean.leader.election.enable": "false",
    "offsets.topic.replication.factor": "3",
    "transaction.state.log.replication.factor": "3",
    "default.replication.factor": "3",
    "min.insync.replicas": "2",
}
NODES = tuple(NodeFacts(i, settings=SETTINGS) for i in (1, 2, 3))
VOTERS = tuple(VoterFacts(i, 0.2, 0) for i in (1, 2, 3))
PARTITION = PartitionFacts("orders", 0, 1, (1, 2, 3), (1, 2, 3), 2)
TOPIC = TopicFacts("orders", False, 3, 2)
WELL = ClusterFacts(
    "c1",
    NODES,
    VOTERS,
    topics=(TOPIC,),
    partitions=(PARTITION,),
    log_dirs=(LogDirFacts(1, "/data", "", 1_000, 500),),
    features=(FeatureFacts("metadata.version", 2, 2), FeatureFacts("unused", 0, 1)),
)
UNCLEAN = {"unclean.leader.election.enable": "true"}


def seen(findings: list[Finding]) -> list[tuple[Severity, str]]:
    return [(finding.severity, finding.subject) for finding in findings]


def on_all(**settings: str) -> tuple[NodeFacts, ...]:
    given = {key.replace("_", "."): value for key, value in settings.items()}
    return tuple(NodeFacts(i, settings={**SETTINGS, **given}) for i in (1, 2, 3))


def test_cluster_that_is_well_has_no_findings() -> None:
    assert health_findings(WELL) == []
    assert doctor_findings(WELL) == []
    assert exit_code([]) == 0


@pytest.mark.parametrize(
    ("change", "severity", "subject", "text"),
    [
        ({"voters": None, "quorum_error": "timed out"}, Severity.CRITICAL, "quorum", "no controller leads"),
        ({"voters": (*VOTERS[:2], VoterFacts(3, 30, 5))}, Severity.WARNING, "controller 3", "30 s ago; 0 more may"),
        ({"voters": (*VOTERS[:2], VoterFacts(3, None, 5))}, Severity.WARNING, "controller 3", "from it never"),
        ({"nodes": (NodeFacts(1, is_fenced=True),)}, Severity.WARNING, "node 1", "it is fenced"),
        ({"nodes": (NodeFacts(1, error="refused"),)}, Severity.WARNING, "node 1", "does not answer: refused"),
        ({"partitions": (replace(PARTITION, leader=None, isr=()),)}, Severity.CRITICAL, "partitions", "no leader"),
        ({"partitions": (replace(PARTITION, isr=(1,)),)}, Severity.CRITICAL, "partitions", "acks=all"),
        ({"partitions": (replace(PARTITION, isr=(1, 3)),)}, Severity.WARNING, "partitions", "not in sync"),
        ({"log_dirs": (LogDirFacts(1, "/d", "I/O error"),)}, Severity.CRITICAL, "node 1, /d", "I/O error"),
        ({"log_dirs": (LogDirFacts(1, "/d", "", 100, 4),)}, Severity.CRITICAL, "node 1, /d", "4% of the disk"),
        ({"log_dirs": (LogDirFacts(1, "/d", "", 100, 14),)}, Severity.WARNING, "node 1, /d", "14% of the disk"),
    ],
)
def test_health_names_what_is_wrong(change: dict[str, object], severity: Severity, subject: str, text: str) -> None:
    [finding] = health_findings(replace(WELL, **change))  # type: ignore[arg-type]
    assert (finding.severity, finding.subject) == (severity, subject)
    assert text in finding.text
    assert finding.action
    assert finding.link.startswith("docs/runbooks.md#tidelog")
    assert exit_code([finding]) == severity.value


def test_replica_that_a_reassignment_adds_is_not_missing() -> None:
    moving = replace(PARTITION, replicas=(1, 2, 3, 4), adding=(4,))
    assert health_findings(replace(WELL, partitions=(moving,))) == []


@pytest.mark.parametrize(
    ("change", "severity", "subject", "text"),
    [
        ({"voters": VOTERS[:2]}, Severity.WARNING, "quorum", "2 controllers survive"),
        ({"voters": VOTERS[:1]}, Severity.WARNING, "quorum", "single point of failure"),
        ({"topics": (replace(TOPIC, replication_factor=1),)}, Severity.WARNING, "topics", "records are gone"),
        ({"topics": (replace(TOPIC, min_isr=3),)}, Severity.WARNING, "topics", "any restart refuses"),
        ({"topics": (replace(TOPIC, min_isr=1),)}, Severity.INFO, "topics", "on one node alone"),
        ({"topics": (replace(TOPIC, config=UNCLEAN),)}, Severity.WARNING, "topics", "lose acknowledged records"),
        (
            {"nodes": (*NODES[:2], NodeFacts(3, settings={**SETTINGS, "min.insync.replicas": "1"}))},
            Severity.WARNING,
            "settings",
            "min.insync.replicas differs between the nodes: 1 on 3; 2 on 1, 2",
        ),
        ({"nodes": on_all(default_replication_factor="1")}, Severity.WARNING, "settings", "is 1 on a cluster of 3"),
        ({"nodes": on_all(unclean_leader_election_enable="true")}, Severity.WARNING, "settings", "on by default"),
        ({"log_dirs": (LogDirFacts(1, "/d", "", 100, 4),)}, Severity.CRITICAL, "node 1, /d", "4% of the disk"),
        (
            {"log_dirs": (LogDirFacts(1, "/a", "", 100, 50), LogDirFacts(1, "/b", "", 100, 50))},
            Severity.INFO,
            "node 1",
            "/a, /b seem to be on one file system",
        ),
        ({"nodes": (*NODES[:2], replace(NODES[2], rack="r"))}, Severity.WARNING, "racks", "nodes 1, 2 have no"),
        (
            {"nodes": (*NODES[:2], NodeFacts(3, settings={**SETTINGS, "cordoned.log.dirs": "*"}))},
            Severity.INFO,
            "node 3",
            "it is cordoned",
        ),
        ({"features": (FeatureFacts("metadata.version", 1, 2),)}, Severity.INFO, "features", "level 1 of"),
    ],
)
def test_doctor_names_what_could_be_better(
    change: dict[str, object], severity: Severity, subject: str, text: str
) -> None:
    [finding] = doctor_findings(replace(WELL, **change))  # type: ignore[arg-type]
    assert (finding.severity, finding.subject) == (severity, subject)
    assert text in finding.text
    assert finding.action


def test_doctor_tells_internal_topics_with_one_replica_apart() -> None:
    internal = replace(TOPIC, name="__consumer_offsets", is_internal=True, replication_factor=1)
    [finding] = doctor_findings(replace(WELL, topics=(TOPIC, internal)))
    assert "one replica of __consumer_offsets: with its node, offsets or transactions are gone" in finding.text


def test_findings_begin_with_the_worst() -> None:
    facts = replace(WELL, nodes=(NodeFacts(1, is_fenced=True),), partitions=(replace(PARTITION, leader=None),))
    assert seen(health_findings(facts)) == [(Severity.CRITICAL, "partitions"), (Severity.WARNING, "node 1")]


def test_names_are_cut() -> None:
    assert named(["a", "b", "c", "d", "e"]) == "a, b, c and 2 more"
