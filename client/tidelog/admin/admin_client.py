"""The admin client with confluent-kafka's API. Each operation returns futures at once, one per topic, partition or
node.
"""

from __future__ import annotations

from typing import Self

from tidelog.admin.cluster import ClusterAdmin
from tidelog.admin.configs import ConfigAdmin
from tidelog.admin.delegation_tokens import DelegationTokenAdmin
from tidelog.admin.groups.group_admin import GroupAdmin
from tidelog.admin.links import LinkAdmin
from tidelog.admin.log_dirs import LogDirAdmin
from tidelog.admin.metadata import ClusterMetadata, GroupMetadata, cluster_id, group_metadata, list_topics
from tidelog.admin.offsets import OffsetAdmin
from tidelog.admin.processes import ProcessAdmin
from tidelog.admin.quorum import QuorumOperations
from tidelog.admin.quotas import QuotaAdmin
from tidelog.admin.reassignments import ReplicaAdmin
from tidelog.admin.records import RecordAdmin
from tidelog.admin.scram import ScramAdmin
from tidelog.admin.security import SecurityAdmin
from tidelog.admin.topics import TopicAdmin
from tidelog.admin.transactions import TransactionAdmin
from tidelog.telemetry.instance_ids import InstanceIds
from tidelog_foundation.transport import run_sync


class AdminOperations(
    ClusterAdmin,
    ConfigAdmin,
    DelegationTokenAdmin,
    GroupAdmin,
    LinkAdmin,
    LogDirAdmin,
    OffsetAdmin,
    ProcessAdmin,
    QuorumOperations,
    QuotaAdmin,
    RecordAdmin,
    ReplicaAdmin,
    SecurityAdmin,
    ScramAdmin,
    TopicAdmin,
    TransactionAdmin,
):
    """All operations that return futures, which callers can wait for or await. None of them blocks."""


class AdminClient(AdminOperations, InstanceIds):
    """Administers a cluster. Thread-safe. Close it, or use it as a context manager.

    ::

        with AdminClient({"bootstrap.servers": "127.0.0.1:9094"}) as admin:
            admin.create_topics([NewTopic("flights", 12, 3)])["flights"].result()
    """

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections. Pending operations fail with _DESTROY. A second call has no effect."""
        if self._lifetime.is_over:
            return
        self._lifetime.end()
        self._lifetime.stop()

    def poll(self, timeout: float = -1) -> int:
        """Call ``error_cb`` for the errors since the last call, and return their number.

        Wait up to ``timeout`` seconds for the first (-1: forever). Futures complete without it.
        """
        self._lifetime.check()
        return self._errors.serve(None if timeout < 0 else timeout)

    def set_sasl_credentials(self, username: str, password: str) -> None:
        """Log in with another name and password from now on; open sessions continue. Thread-safe.

        Raises:
            KafkaException: _INVALID_ARG, one of them is empty, or sasl.mechanisms is not PLAIN or SCRAM.
        """
        self._lifetime.check()
        self._cluster.replace_credentials(username, password)

    def list_topics(self, topic: str | None = None, timeout: float = -1) -> ClusterMetadata:
        """Return the cluster's nodes and topics. Raise KafkaException if no node answers in ``timeout`` seconds."""
        self._lifetime.check()
        return run_sync(list_topics(self._cluster, topic, timeout))

    def cluster_id(self, timeout: float = -1) -> str:
        """Return the cluster's id. Raise KafkaException if no node answers in ``timeout`` seconds."""
        self._lifetime.check()
        return run_sync(cluster_id(self._cluster, timeout))

    def list_groups(self, group: str | None = None, timeout: float = -1) -> list[GroupMetadata]:
        """Return one group, or the groups of all kinds; raise KafkaException if a node does not answer in time.

        :meth:`list_consumer_groups` and :meth:`describe_consumer_groups` return more about consumer groups.
        """
        self._lifetime.check()
        return run_sync(group_metadata(self._cluster, group, timeout))
