"""The services of a node's gRPC listeners, with what every call passes: limits, authentication, rules and quotas."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import grpc.aio
from grpc_health.v1 import health_pb2

from tidelog_foundation.authorization import Authorizer
from tidelog_foundation.dataclass import dataclass
from tidelog_foundation.security.certificate_store import CertificateStore
from tidelog_foundation.transport.authorization import AuthorizingGuard
from tidelog_foundation.transport.budget import ByteBudget
from tidelog_foundation.transport.call_times import CallTimes
from tidelog_foundation.transport.health_service import HealthService
from tidelog_foundation.transport.intake import Intake
from tidelog_foundation.transport.services import Identify, add_servicer
from tidelog_node.handlers import NodeContext
from tidelog_node.server.authorization import RULES, STREAMS
from tidelog_node.server.call_quotas import CallQuotas
from tidelog_node.server.grpc_connections import NodeConnections
from tidelog_node.server.log_service import log_service
from tidelog_node.server.sasl import NodeSasl
from tidelog_node.server.services import admin_service, group_service, transaction_service
from tidelog_node.server.tls import callers_of


@dataclass(frozen=True, slots=True)
class GrpcServices:
    """The parts that the services of all listeners share. Without an ``authorizer``, everybody may do everything."""

    sasl: NodeSasl
    certificates: Mapping[str, CertificateStore]
    connections: NodeConnections
    calls: CallTimes
    health: HealthService
    authorizer: Authorizer | None
    budget: ByteBudget
    intake: Intake

    def add(self, listener: str, server: grpc.aio.Server, context: NodeContext) -> None:
        """Serve the clients of one listener by ``context``, which has the coordinators."""
        assert context.groups is not None
        assert context.transactions is not None
        sessions = self.sasl.sessions(listener)
        if sessions is not None:
            sessions.add_to(server)
            identify: Identify = sessions.identify
        else:
            identify = callers_of(self.certificates.get(listener))
        guard = None if self.authorizer is None else self._guard(self.authorizer, listener, context)
        gate = CallQuotas(context.quotas, guard)
        for service in (
            log_service(context, self.budget, guard, self.calls),
            admin_service(context),
            group_service(context, context.groups, context.transactions),
            transaction_service(context),
        ):
            limited = self.connections.limited(listener, identify)
            service.add_to(server, self.intake, limited, guard, gate, self.calls)
        # Callers that have not logged in must not send messages; the node as a whole is the only service.
        of_all = self.intake if sessions is None else None
        add_servicer(server, of_all, health_pb2.DESCRIPTOR.services_by_name["Health"], self.health)

    def add_all(self, servers: Mapping[str, grpc.aio.Server], context: NodeContext) -> None:
        """Serve all listeners. With several, the clients of each reach other nodes over that of the same name."""
        for name, server in servers.items():
            self.add(name, server, context if len(servers) == 1 else replace(context, grpc_listener=name))

    def _guard(self, authorizer: Authorizer, listener: str, context: NodeContext) -> AuthorizingGuard:
        cache = context.metadata
        return AuthorizingGuard(authorizer, RULES, STREAMS, lambda: cache.image.acls, cache.topic_name, listener)
