"""The state that the handlers of requests share. Only :class:`tidelog_quorum.controller.state_machine.Controller` and
the handlers that it calls change it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

from tidelog_foundation.ids import LeaderEpoch, TopicId
from tidelog_foundation.requests.quotas import QuotaClient
from tidelog_foundation.sasl.token_hmacs import TokenHmacs
from tidelog_quorum.controller.config import ControllerConfig
from tidelog_quorum.controller.elections import rules_of
from tidelog_quorum.controller.mutation_quotas import MutationQuota, MutationQuotas
from tidelog_quorum.controller.partition_change import ElectionRules
from tidelog_quorum.controller.partition_queue import PartitionQueue
from tidelog_quorum.controller.placement import ClusterLoad
from tidelog_quorum.controller.sessions import BrokerSessions
from tidelog_quorum.metadata.image import MetadataImage


class ControllerState:
    """The images, the soft state of a leading controller, and the settings of its own file: plain data.

    ``own`` are the default settings of topics and ``limits`` those of groups. ``topic_ids`` yields the ids of new
    topics, ACLs and delegation tokens, each of them once. ``queue`` has the partitions to settle. ``token_hmacs`` is
    None without a secret key of delegation tokens. ``drained`` has the partitions of mirror topics in promotion whose
    leaders have reported all records of the source, with the leader epochs of the reports.
    """

    def __init__(self, config: ControllerConfig, topic_ids: Iterator[TopicId]) -> None:
        self.config = config
        self.own = config.topic_config()
        self.limits = config.group_limits()
        self.load = ClusterLoad()
        self.topic_ids = topic_ids
        secret_key = config.delegation_token_secret_key
        self.token_hmacs = None if secret_key is None else TokenHmacs(secret_key)
        self.sessions = BrokerSessions(config.broker_session_timeout_ms)
        self.queue = PartitionQueue(self.own)
        self.mutation_quotas = MutationQuotas(config.quota_windows())
        self.drained: dict[TopicId, dict[int, LeaderEpoch]] = {}
        self.committed = MetadataImage()
        self._pending: deque[MetadataImage] = deque()

    @property
    def latest(self) -> MetadataImage:
        """The image for decisions: the committed one plus this leader's own uncommitted entries."""
        try:
            return self._pending[-1]
        except IndexError:
            return self.committed

    def mutation_quota(self, client: QuotaClient | None, now_ms: int) -> MutationQuota:
        """Return the quota of a request of a client."""
        return self.mutation_quotas.quota_of(self.latest.client_quotas, client, now_ms)

    def rules_of(self, topic_name: str) -> ElectionRules:
        """Return the election rules of a topic."""
        return rules_of(self.latest, topic_name, self.own)
