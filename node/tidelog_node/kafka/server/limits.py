"""Limits on the resources that network clients can use at the Kafka listeners."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class ListenerLimits:
    """The limits of all Kafka listeners of a node together.

    Fields before ``max_in_flight`` are settings, see KafkaListenerConfig.
    """

    request_max_bytes: int = 100 * 1024**2
    max_connections: int = 2**31 - 1
    max_connections_per_ip: int = 2**31 - 1
    max_idle_s: float = 600.0
    send_buffer_bytes: int = -1
    """SO_SNDBUF; -1 means the system default."""
    receive_buffer_bytes: int = -1
    """SO_RCVBUF; -1 means the system default."""
    max_in_flight: int = 1_000
    """The maximum number of started requests per connection whose responses have not been sent."""
    frame_pause_s: float = 30.0
    """The longest allowed pause of a sender within a frame."""
    frame_bytes_per_s: int = 32 * 1024
    """The minimum rate of a frame, after a total allowance of ``frame_pause_s``."""
    wanted_frame_bytes: int = 4 * 1024**2
    """The size from which stricter limits apply to a frame while other requests wait for its memory.

    A sender must not block all others with a few bytes.
    """
    wanted_pause_s: float = 2.0
    wanted_bytes_per_s: int = 1024**2
