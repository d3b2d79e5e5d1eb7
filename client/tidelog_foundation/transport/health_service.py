"""The readiness and liveness of a process as the service grpc.health.v1.Health.

The service ``""``, also named ``readiness``, has the answer of ``/readyz``, and the service ``liveness`` that of
``/livez``: it is SERVING whenever the event loop can answer.
"""

from __future__ import annotations

import asyncio
from typing import Final

import grpc.aio
from google.protobuf.message import Message
from grpc_health.v1 import health, health_pb2

from tidelog_foundation.monitoring.checks import Readiness

READINESS: Final = ("", "readiness")
LIVENESS: Final = "liveness"
_SERVING: Final = health_pb2.HealthCheckResponse.SERVING
_NOT_SERVING: Final = health_pb2.HealthCheckResponse.NOT_SERVING
_INTERVAL_S: Final = 0.5
"""The interval at which watchers learn of changes. A check is answered with the state of its moment."""


class HealthService(health.aio.HealthServicer):  # type: ignore[misc]  # the library has no types
    """Answers with the outcome of the checks. :meth:`run` keeps watchers informed, until cancelled."""

    def __init__(self, readiness: Readiness) -> None:
        super().__init__()
        self._readiness = readiness
        self._server_status: dict[str, int] = dict.fromkeys(READINESS, _NOT_SERVING) | {LIVENESS: _SERVING}

    async def Check(  # noqa: N802  # the name of the method in the service
        self, request: health_pb2.HealthCheckRequest, context: grpc.aio.ServicerContext[object, object]
    ) -> health_pb2.HealthCheckResponse:
        """Answer with the state of this moment."""
        await self.refresh()
        return await super().Check(request, context)

    async def List(self, request: object, context: object) -> Message:  # noqa: N802  # as above
        """Answer with the states of all services. Only later releases of the library have this method."""
        await self.refresh()
        statuses = {
            service: health_pb2.HealthCheckResponse(status=status) for service, status in self._server_status.items()
        }
        answer: Message = health_pb2.HealthListResponse(statuses=statuses)
        return answer

    async def refresh(self) -> None:
        """Run the checks, and tell the watchers of a change."""
        status = _SERVING if all(check.is_ok for check in self._readiness()) else _NOT_SERVING
        for service in READINESS:
            if self._server_status[service] != status:
                await self.set(service, status)

    async def run(self) -> None:
        """Tell watchers of changes until cancelled."""
        while True:
            await self.refresh()
            await asyncio.sleep(_INTERVAL_S)
