"""The rules of ``tidelog cluster doctor``: whether the cluster is set up to survive failures."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Final

from tidelog_cli.health.facts import ClusterFacts, LogDirFacts, TopicFacts
from tidelog_cli.health.finding import Finding, Severity, named
from tidelog_cli.health.process_rules import process_findings
from tidelog_cli.health.state_rules import DISK_FILLS, DISK_FULL
from tidelog_foundation.config.broker import CORDONED_LOG_DIRS

_PAGE: Final = "docs/health.md#doctor"
_REPLICATED_NODES: Final = 3
"""The number of nodes from which on one replica is a mistake."""
_UNCLEAN: Final = "unclean.leader.election.enable"
_INTERNAL_FACTORS: Final = ("offsets.topic.replication.factor", "transaction.state.log.replication.factor")
SHARED_SETTINGS: Final = (
    _UNCLEAN,
    *_INTERNAL_FACTORS,
    "auto.create.topics.enable",
    "default.replication.factor",
    "min.insync.replicas",
    "num.partitions",
    "replica.lag.time.max.ms",
)
"""The settings of nodes that should be the same on all."""


def doctor_findings(facts: ClusterFacts) -> list[Finding]:
    """Return what could be set up better, the worst first."""
    found = [*_voters(facts), *_topics(facts), *_settings(facts), *_disks(facts), *_racks(facts), *_features(facts)]
    found += (*_cordons(facts), *process_findings(facts))
    return sorted(found, key=lambda finding: -finding.severity)


def _voters(facts: ClusterFacts) -> Iterator[Finding]:
    if facts.voters is None:
        return
    count = len(facts.voters)
    if count % 2 == 0:
        text = f"{count} controllers survive no more failures than {count - 1}"
        yield Finding(Severity.WARNING, "quorum", text, "have 3 or 5 voters: tidelog quorum add-voter", _PAGE)
    elif count == 1 and len(facts.nodes) >= _REPLICATED_NODES:
        text = "the only controller is a single point of failure"
        yield Finding(Severity.WARNING, "quorum", text, "add two: tidelog quorum add-voter", _PAGE)


def _topics(facts: ClusterFacts) -> Iterator[Finding]:
    if len(facts.nodes) >= _REPLICATED_NODES:
        for is_internal in (True, False):
            single = [t for t in facts.topics if t.replication_factor == 1 and t.is_internal == is_internal]
            if single:
                lost = "offsets or transactions" if is_internal else "records"
                text = f"one replica of {_names(single)}: with its node, {lost} are gone"
                action = "add replicas: tidelog partition reassign"
                yield Finding(Severity.WARNING, "topics", text, action, _PAGE)
    brittle = [t for t in facts.topics if 1 < t.replication_factor <= t.min_isr]
    if brittle:
        text = f"min.insync.replicas is the number of replicas of {_names(brittle)}: any restart refuses acks=all"
        yield Finding(Severity.WARNING, "topics", text, "set min.insync.replicas one lower", _PAGE)
    thin = [t for t in facts.topics if t.replication_factor >= _REPLICATED_NODES and t.min_isr == 1]
    if thin:
        text = f"min.insync.replicas is 1 for {_names(thin)}: an acknowledged record may be on one node alone"
        yield Finding(Severity.INFO, "topics", text, "set min.insync.replicas to 2", _PAGE)
    unclean = [t for t in facts.topics if t.config.get(_UNCLEAN) == "true"]
    if unclean:
        text = f"{_UNCLEAN} is on for {_names(unclean)}: an election can lose acknowledged records"
        yield Finding(Severity.WARNING, "topics", text, "set it to false", _PAGE)


def _settings(facts: ClusterFacts) -> Iterator[Finding]:
    known = [node for node in facts.nodes if node.settings]
    for key in SHARED_SETTINGS:
        values = Counter(node.settings[key] for node in known if key in node.settings)
        if len(values) > 1:
            shown = "; ".join(
                f"{value} on {', '.join(str(n.node_id) for n in known if n.settings.get(key) == value)}"
                for value in sorted(values)
            )
            text = f"{key} differs between the nodes: {shown}"
            yield Finding(Severity.WARNING, "settings", text, "give all nodes the same value", _PAGE)
    if any(node.settings.get(_UNCLEAN) == "true" for node in known):
        text = f"{_UNCLEAN} is on by default: an election can lose acknowledged records"
        yield Finding(Severity.WARNING, "settings", text, "set it to false", _PAGE)
    if len(facts.nodes) >= _REPLICATED_NODES:
        for key in ("default.replication.factor", *_INTERNAL_FACTORS):
            if any(node.settings.get(key) == "1" for node in known):
                text = f"{key} is 1 on a cluster of {len(facts.nodes)} nodes"
                yield Finding(Severity.WARNING, "settings", text, "set it to 3", _PAGE)


def _disks(facts: ClusterFacts) -> Iterator[Finding]:
    for directory in facts.log_dirs:
        free = directory.free_share
        if not directory.error and free is not None and free < DISK_FILLS:
            severity = Severity.CRITICAL if free < DISK_FULL else Severity.WARNING
            subject = f"node {directory.node_id}, {directory.path}"
            yield Finding(severity, subject, f"{free:.0%} of the disk is free", "free space, or add a disk", _PAGE)
    for node in facts.nodes:
        own = [d for d in facts.log_dirs if d.node_id == node.node_id and d.total_bytes > 0]
        sizes = Counter(map(_file_system, own))
        shared = [d.path for d in own if sizes[_file_system(d)] > 1]
        if shared:
            text = f"{named(shared)} seem to be on one file system: same size, same free space"
            action = "give each entry of log.dirs a disk of its own, or have one entry"
            yield Finding(Severity.INFO, f"node {node.node_id}", text, action, _PAGE)


def _cordons(facts: ClusterFacts) -> Iterator[Finding]:
    for node in facts.nodes:
        if node.settings.get(CORDONED_LOG_DIRS):
            action = f"stop and unregister it when it is empty, or tidelog node drain {node.node_id} --cancel"
            yield Finding(Severity.INFO, f"node {node.node_id}", "it is cordoned: it gets no replicas", action, _PAGE)


def _racks(facts: ClusterFacts) -> Iterator[Finding]:
    without = [str(node.node_id) for node in facts.nodes if not node.rack]
    if without and len(without) < len(facts.nodes):
        text = (
            f"nodes {named(without)} have no broker.rack, others have one: replicas are placed without regard to racks"
        )
        yield Finding(Severity.WARNING, "racks", text, "set broker.rack on all nodes", _PAGE)


def _features(facts: ClusterFacts) -> Iterator[Finding]:
    for feature in facts.features:
        if 0 < feature.level < feature.max_level:
            text = f"level {feature.level} of {feature.name} is in use, all processes support {feature.max_level}"
            action = f"tidelog cluster features upgrade {feature.name}={feature.max_level}"
            yield Finding(Severity.INFO, "features", text, action, _PAGE)


def _file_system(directory: LogDirFacts) -> tuple[int, int]:
    return directory.total_bytes, directory.usable_bytes


def _names(topics: list[TopicFacts]) -> str:
    return named([topic.name for topic in topics])
