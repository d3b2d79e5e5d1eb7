"""confluent-kafka's ThrottleEvent."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class ThrottleEvent:
    """The argument of ``throttle_cb``: a node delayed a request by ``throttle_time`` seconds.

    Nodes do not throttle clients yet.
    """

    broker_name: str
    broker_id: int
    throttle_time: float

    def __str__(self) -> str:
        return f"{self.broker_name}/{self.broker_id} throttled for {int(self.throttle_time * 1000)} ms"
