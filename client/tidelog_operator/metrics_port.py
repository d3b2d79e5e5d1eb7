"""The port at which Prometheus reads the operator's metrics."""

from __future__ import annotations

import asyncio
from typing import Final

from aiohttp import web

from tidelog_foundation.monitoring.exposition import Exposition, Format
from tidelog_operator.metrics import OperatorMetrics

_MAX_BODY_BYTES: Final = 1024


class MetricsPort:
    """Serves ``/metrics`` from :meth:`open` to :meth:`close`, on the event loop of kopf."""

    def __init__(self, metrics: OperatorMetrics, host: str, port: int) -> None:
        self._metrics = metrics
        self._address = (host, port)
        self._exposition = Exposition()
        self._runner: web.AppRunner | None = None

    async def open(self) -> int:
        """Listen, and return the port.

        Raises:
            OSError: The port is in use, or the host is not one of this machine's.
        """
        application = web.Application(client_max_size=_MAX_BODY_BYTES)
        application.router.add_get("/metrics", self._answer)
        self._runner = web.AppRunner(application, access_log=None)
        await self._runner.setup()
        await web.TCPSite(self._runner, *self._address).start()
        port: int = self._runner.addresses[0][1]
        return port

    async def close(self) -> None:
        """Close all connections, and release the port."""
        if self._runner is not None:
            await self._runner.cleanup()

    async def _answer(self, request: web.Request) -> web.Response:
        format_ = Format.accepted(request.headers.get("Accept", ""))
        body = await asyncio.to_thread(self._exposition.render, list(self._metrics.read()), format_)
        return web.Response(body=body, headers={"Content-Type": format_.value})
