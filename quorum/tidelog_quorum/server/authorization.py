"""The rules of a controller's gRPC methods, and the ACLs by which it decides.

Nodes authorize the requests of administrators that they forward. A controller therefore accepts every such request of a
caller that may perform CLUSTER_ACTION, and applies the rules to all other callers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from tidelog_foundation.authorization import Access
from tidelog_foundation.authorization.admin_rules import ADMIN_RULES
from tidelog_foundation.authorization.counted import CountedAuthorizer
from tidelog_foundation.authorization.rules import Handle, Rule, on_cluster
from tidelog_foundation.errors import ErrorCode, error_for
from tidelog_foundation.ids import AclId, TopicId
from tidelog_foundation.requests.acls import AclBinding, AclOperation
from tidelog_foundation.requests.quotas import QuotaClient
from tidelog_foundation.transport.authorization import AuthorizingGuard
from tidelog_foundation.transport.services import Caller
from tidelog_quorum.server.config import QuorumConfig
from tidelog_quorum.server.quorum_controller import QuorumController


def _or_of_node(rule: Rule) -> Rule:
    """Return a rule that lets the requests of nodes pass. Any other caller's quotas are its own."""

    async def decide(access: Access, request: Any, handle: Handle) -> Any:
        if access.on_cluster(AclOperation.CLUSTER_ACTION, log=False):
            return await handle(request)
        if hasattr(request, "quota_client"):
            request = replace(request, quota_client=QuotaClient(access.principal.name, access.client_id))
        return await rule(access, request, handle)

    return decide


_OF_NODES: Final = on_cluster(AclOperation.CLUSTER_ACTION)
RULES: Final[Mapping[str, Rule]] = {
    **{name: _or_of_node(rule) for name, rule in ADMIN_RULES.items()},
    # As in Kafka, describing the cluster needs more on a controller than on a node.
    "DescribeCluster": _or_of_node(on_cluster(AclOperation.ALTER)),
    "RegisterBroker": _OF_NODES,
    "BrokerHeartbeat": _OF_NODES,
    "HoldConnection": _OF_NODES,
    "AlterPartition": _OF_NODES,
    "AssignReplicasToDirs": _OF_NODES,
    "AllocateProducerIds": _OF_NODES,
    "AlterDelegationToken": _OF_NODES,
    "ReportMirrorPartitions": _OF_NODES,
    "ReportMirrorSettings": _OF_NODES,
    "DescribeQuorum": _or_of_node(on_cluster(AclOperation.DESCRIBE)),
    "AddRaftVoter": _or_of_node(on_cluster(AclOperation.ALTER)),
    "RemoveRaftVoter": _or_of_node(on_cluster(AclOperation.ALTER)),
    "UpdateRaftVoter": _OF_NODES,
    "TransferLeadership": on_cluster(AclOperation.ALTER),
    "TakeSnapshot": on_cluster(AclOperation.ALTER),
}
STREAMS: Final[Mapping[str, AclOperation | None]] = {
    "FollowMetadata": AclOperation.CLUSTER_ACTION,
    "Exchange": AclOperation.CLUSTER_ACTION,
}


def controller_guards(config: QuorumConfig) -> dict[str, ControllerGuard]:
    """Return the guard of each listener, by its name; none without an authorizer."""
    authorizer = config.new_authorizer(config.node_id)
    if authorizer is None:
        return {}
    decisions = CountedAuthorizer(authorizer)
    return {x.name: ControllerGuard(decisions, x.name) for x in config.controller_listeners.bound}


class ControllerGuard(AuthorizingGuard):
    """The guard of a controller's services at one listener.

    Until the ACLs are known, it accepts super users alone, so that servers can connect (Kafka's early start listeners).
    They are known once the committed image has an entry of the leader's epoch, as it then has all earlier ones.
    """

    def __init__(self, decisions: CountedAuthorizer, listener: str) -> None:
        self.decisions = decisions
        super().__init__(decisions, RULES, STREAMS, self._known_acls, self._name_of, listener)
        self._controller: QuorumController | None = None
        self._is_loaded = False

    def follow(self, controller: QuorumController) -> None:
        """Decide by the ACLs of a controller's image from now on."""
        self._controller = controller

    def access(self, method: str, caller: Caller) -> Access:
        """Return the decisions about a call.

        Raises:
            TidelogError: NOT_CONTROLLER: the ACLs are not known yet, and the caller is no super user.
        """
        access = super().access(method, caller)
        if not self._is_loaded and not access.on_cluster(AclOperation.CLUSTER_ACTION, log=False):
            raise error_for(ErrorCode.NOT_CONTROLLER, "the controller has not loaded the ACLs yet")
        return access

    def _known_acls(self) -> Mapping[AclId, AclBinding] | None:
        if self._controller is None:
            return None
        image, leader = self._controller.controller.committed, self._controller.leader
        self._is_loaded = self._is_loaded or (leader.leader_id is not None and image.epoch >= leader.epoch)
        return image.acls if self._is_loaded else None

    def _name_of(self, topic_id: bytes) -> str | None:
        if self._controller is None:
            return None
        return self._controller.controller.committed.topic_names.get(TopicId(topic_id))
