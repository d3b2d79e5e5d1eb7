"""The rules of ``tidelog cluster health``: whether the cluster serves its clients, and what it can still lose."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from tidelog_cli.health.facts import ClusterFacts, PartitionFacts
from tidelog_cli.health.finding import Finding, Severity, named

_RUNBOOKS: Final = "docs/runbooks.md"
VOTER_SILENT_S: Final = 10.0
"""The silence of a voter that counts, as in the alert TidelogVoterSilent."""
DISK_FULL: Final = 0.05
DISK_FILLS: Final = 0.15
"""The free part of a disk below which it counts as full, or as filling up."""


def health_findings(facts: ClusterFacts) -> list[Finding]:
    """Return what is wrong, the worst first."""
    found = [*_quorum(facts), *_nodes(facts), *_partitions(facts), *_directories(facts)]
    return sorted(found, key=lambda finding: -finding.severity)


def _quorum(facts: ClusterFacts) -> Iterator[Finding]:
    if facts.voters is None:
        text = f"no controller leads ({facts.quorum_error}): no leader changes, and no topic is created"
        action = "start a majority of the controllers; tidelog quorum describe shows them"
        yield Finding(Severity.CRITICAL, "quorum", text, action, f"{_RUNBOOKS}#tidelognoactivecontroller")
        return
    silent = [v for v in facts.voters if v.contact_age_s is None or v.contact_age_s > VOTER_SILENT_S]
    left = len(facts.voters) - len(silent)
    for voter in silent:
        age = "never" if voter.contact_age_s is None else f"{voter.contact_age_s:.0f} s ago"
        spare = left - (len(facts.voters) // 2 + 1)
        text = f"the leader last heard from it {age}; {spare} more may fail before the quorum loses its majority"
        link = f"{_RUNBOOKS}#tidelogvotersilent"
        action = "start it, or mend its network"
        yield Finding(Severity.WARNING, f"controller {voter.voter_id}", text, action, link)


def _nodes(facts: ClusterFacts) -> Iterator[Finding]:
    for node in facts.nodes:
        subject = f"node {node.node_id}"
        if node.is_fenced:
            text = "it is fenced: it sends no heartbeats, or has not caught up with the metadata"
            action = "start it; if it is gone for good, tidelog node drain and tidelog node unregister"
            yield Finding(Severity.WARNING, subject, text, action, f"{_RUNBOOKS}#tidelognodefenced")
        elif node.error:
            text = f"it is not fenced but does not answer: {node.error}"
            action = "look at its log, and at the network between it and here"
            yield Finding(Severity.WARNING, subject, text, action, f"{_RUNBOOKS}#tidelogprocessdown")


def _partitions(facts: ClusterFacts) -> Iterator[Finding]:
    offline = [p for p in facts.partitions if p.leader is None]
    led = [p for p in facts.partitions if p.leader is not None]
    refused = [p for p in led if len(p.isr) < _required(p)]
    behind = [p for p in led if len(p.isr) >= _required(p) and set(p.isr) < set(p.replicas) - set(p.adding)]
    if offline:
        text = f"{_have(offline, 'no leader')}: they can be neither written nor read"
        action = f"start the nodes {_missing(offline)}; the last one that was in sync suffices"
        yield Finding(Severity.CRITICAL, "partitions", text, action, f"{_RUNBOOKS}#tidelogofflinepartitions")
    if refused:
        text = f"{_have(refused, 'fewer than min.insync.replicas in sync')}: writes with acks=all are refused"
        action = f"start the nodes {_missing(refused)}, or see why their replicas lag"
        yield Finding(Severity.CRITICAL, "partitions", text, action, f"{_RUNBOOKS}#tidelogunderminisrpartitions")
    if behind:
        text = f"{_have(behind, 'replicas that are not in sync')}"
        action = f"after a restart wait; else look at the nodes {_missing(behind)}"
        yield Finding(Severity.WARNING, "partitions", text, action, f"{_RUNBOOKS}#tidelogunderreplicatedpartitions")


def _directories(facts: ClusterFacts) -> Iterator[Finding]:
    for directory in facts.log_dirs:
        subject = f"node {directory.node_id}, {directory.path}"
        free = directory.free_share
        if directory.error:
            text, action = f"it is offline: {directory.error}", "replace the disk, and restart the node"
            yield Finding(Severity.CRITICAL, subject, text, action, f"{_RUNBOOKS}#tideloglogdirectoryfailed")
        elif free is not None and free < DISK_FILLS:
            severity = Severity.CRITICAL if free < DISK_FULL else Severity.WARNING
            action = "shorten retention.ms or retention.bytes, or move replicas away"
            yield Finding(severity, subject, f"{free:.0%} of the disk is free", action, f"{_RUNBOOKS}#tidelogdiskfull")


def _required(partition: PartitionFacts) -> int:
    return min(partition.min_isr, len(partition.replicas) - len(partition.adding))


def _have(partitions: list[PartitionFacts], what: str) -> str:
    names = named([partition.name for partition in partitions])
    return f"{len(partitions)} partition{'s have' if len(partitions) > 1 else ' has'} {what} ({names})"


def _missing(partitions: list[PartitionFacts]) -> str:
    return ", ".join(map(str, sorted({node for p in partitions for node in p.replicas if node not in p.isr})))
