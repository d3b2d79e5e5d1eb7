"""The method of a client that returns its instance id (KIP-714)."""

from __future__ import annotations

from tidelog.cluster.lifetime import Lifetime
from tidelog.telemetry.pusher import TelemetryPusher
from tidelog.uuid import Uuid
from tidelog_foundation.errors import ErrorCode, error_for
from tidelog_foundation.transport import run_on_network, run_sync


class InstanceIds:
    """The base of producers, consumers and admin clients that adds :meth:`client_instance_id`."""

    _lifetime: Lifetime
    _telemetry: TelemetryPusher | None

    def client_instance_id(self, timeout: float) -> Uuid:
        """Return the id that the cluster has given to this client, under which a node exports its pushed metrics.

        Wait up to ``timeout`` seconds for it.

        Raises:
            KafkaException: _STATE with ``enable.metrics.push=false``; _TIMED_OUT, or another error of a cluster that
                cannot be reached; UNSUPPORTED_VERSION, the node takes no metrics; _DESTROY if the client is closed.
            ValueError: ``timeout`` is negative.
        """
        telemetry = _checked(self._lifetime, self._telemetry, timeout)
        return Uuid.from_bytes(run_sync(telemetry.instance_id(timeout * 1000)))


async def awaited_instance_id(lifetime: Lifetime, telemetry: TelemetryPusher | None, timeout: float) -> Uuid:  # noqa: ASYNC109
    """Return a client's id in the caller's event loop. Raise as :meth:`InstanceIds.client_instance_id` does."""
    checked = _checked(lifetime, telemetry, timeout)
    return Uuid.from_bytes(await run_on_network(checked.instance_id(timeout * 1000)))


def _checked(lifetime: Lifetime, telemetry: TelemetryPusher | None, timeout: float) -> TelemetryPusher:
    if timeout < 0:
        raise ValueError(f"timeout must not be negative, not {timeout}")
    lifetime.check()
    if telemetry is None:
        raise error_for(ErrorCode._STATE, "the client has no instance id: enable.metrics.push is false")
    return telemetry
