"""The table of alerts and faults."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Final, NamedTuple

from compat.alert_faults import of_clients, of_processes, of_replication, of_storage
from compat.alert_faults.deployment import Deployment


class Case(NamedTuple):
    """An alert, the deployment in which its fault occurs, and the fault."""

    alert: str
    deployment: str
    fault: Callable[[Deployment], AbstractContextManager[None]]


CASES: Final = (
    Case("ProcessDown", "quorum", of_processes.killed_node),
    Case("NodeFenced", "quorum", of_processes.killed_node),
    Case("UnderReplicatedPartitions", "quorum", of_processes.killed_node),
    Case("UnderMinIsrPartitions", "quorum", of_processes.killed_node),
    Case("OfflinePartitions", "quorum", of_processes.killed_nodes),
    Case("NoActiveController", "quorum", of_processes.killed_quorum),
    Case("SeveralActiveControllers", "quorum", of_processes.second_quorum),
    Case("VoterSilent", "quorum", of_processes.paused_voter),
    Case("VoterSilent", "quorum", of_processes.dead_voter_of_a_new_leader),
    Case("EventLoopBusy", "quorum", of_processes.busy_node),
    Case("EventLoopLate", "quorum", of_processes.stuttering_node),
    Case("QuorumUnstable", "quorum", of_processes.leaders_that_die),
    Case("ProduceSlow", "replicas", of_replication.slow_follower_of_kafka_clients),
    Case("ProduceSlow", "replicas", of_replication.slow_follower),
    Case("GroupLagGrows", "replicas", of_replication.slow_group),
    Case("FileDescriptorsLow", "replicas", of_replication.idle_connections),
    Case("CoordinatorLoads", "replicas", of_replication.hindered_load),
    Case("IsrUnstable", "replicas", of_replication.follower_out_of_sync),
    Case("MetadataLag", "replicas", of_replication.paused_metadata),
    Case("SeriesOmitted", "storage", of_storage.too_many_topics),
    Case("DiskFillsUp", "storage", of_storage.filling_disk),
    Case("DiskFull", "storage", of_storage.full_disk),
    Case("CleanerFails", "storage", of_storage.damaged_segment),
    Case("UncleanLeaderElection", "storage", of_storage.unclean_election),
    Case("LeadersUnbalanced", "storage", of_storage.restarted_node),
    Case("LogDirectoryFailed", "storage", of_storage.failed_directory),
    Case("OfflineReplicas", "storage", of_storage.failed_directory),
    Case("ConnectionsRefused", "secured", of_clients.refused_connections),
    Case("LoginsFail", "secured", of_clients.wrong_passwords),
    Case("CertificateExpires", "secured", of_clients.certificate_of_a_week),
    Case("CertificateExpired", "secured", of_clients.certificate_of_seconds),
)
"""Those of a deployment stand together."""
