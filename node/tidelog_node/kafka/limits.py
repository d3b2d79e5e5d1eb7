"""What the listener takes from whoever is on the network."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class ListenerLimits:
    """For all Kafka listeners of a node together; to ``max_in_flight`` they are settings, see KafkaListenerConfig."""

    request_max_bytes: int = 100 * 1024**2
    max_connections: int = 2**31 - 1
    max_connections_per_ip: int = 2**31 - 1
    max_idle_s: float = 600.0
    send_buffer_bytes: int = -1
    """SO_SNDBUF; -1: the system decides."""
    receive_buffer_bytes: int = -1
    """SO_RCVBUF; -1: the system decides."""
    max_in_flight: int = 1_000
    """How many requests of one connection may have begun whose responses have not left."""
    frame_pause_s: float = 30.0
    """How long a sender may pause in the middle of a frame."""
    frame_bytes_per_s: int = 32 * 1024
    """How fast a frame must come at least, but for ``frame_pause_s`` in all."""
    wanted_frame_bytes: int = 4 * 1024**2
    """A frame of at least so many bytes, while others wait for its memory, must come with less of a pause and faster:
    nobody is to hold up all others with a few bytes."""
    wanted_pause_s: float = 2.0
    wanted_bytes_per_s: int = 1024**2
