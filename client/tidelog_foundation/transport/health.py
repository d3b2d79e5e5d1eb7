"""Health checks on a port of their own, for supervisors that speak neither TLS nor SASL, such as Kubernetes.

The port answers the service grpc.health.v1.Health and nothing else. It tells everyone who reaches it whether the
process serves.
"""

from __future__ import annotations

import grpc.aio
from grpc_health.v1 import health, health_pb2

from tidelog_foundation.config.endpoints import parse_address
from tidelog_foundation.transport.budget import ByteBudget
from tidelog_foundation.transport.channels import bind_port, server_options
from tidelog_foundation.transport.intake import Charge, Intake
from tidelog_foundation.transport.services import add_servicer

_MAX_REQUEST_BYTES = 1024
_MAX_CALLS = 100


class HealthPort:
    """A server of health checks, from :meth:`start` to :meth:`stop`. Without an address it does nothing."""

    def __init__(self, address: str | None, servicer: health.aio.HealthServicer) -> None:
        """Bind the address.

        Raises:
            ConfigError: The port is in use, or the host is not one of this machine's.
        """
        self._server: grpc.aio.Server | None = None
        if not address:
            return
        self._server = grpc.aio.server(options=server_options(_MAX_REQUEST_BYTES), maximum_concurrent_rpcs=_MAX_CALLS)
        intake = Intake(Charge(ByteBudget(_MAX_CALLS * _MAX_REQUEST_BYTES)))
        add_servicer(self._server, intake, health_pb2.DESCRIPTOR.services_by_name["Health"], servicer)
        self.port = bind_port(self._server, *parse_address(address))

    async def start(self) -> None:
        """Answer from now on; until then, connections get no answer."""
        if self._server is not None:
            await self._server.start()

    async def stop(self) -> None:
        """End all connections."""
        if self._server is not None:
            await self._server.stop(0)
