"""Choice of the short way of a fetcher's polls: the compiled one if it exists and the transport has one, else none.

``TIDELOG_PURE_PYTHON=1`` in the environment selects none. All polls then take the way of
:class:`~tidelog_node.partitions.fetchers.leader_fetcher.LeaderFetcher`, whose outcome is the same.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, Final, Protocol, runtime_checkable

from tidelog_foundation.compiled import compiled
from tidelog_node.fetching import FetchRequest, FetchResponse, ReplicaTransport

if TYPE_CHECKING:
    from tidelog_node.partitions.fetchers.leader_fetcher import LeaderFetcher


class Steps(Protocol):
    """The short way of one fetcher. A transport that knows it calls its compiled methods."""

    def fetch(self, address: str, request: FetchRequest, timeout_s: float) -> Coroutine[Any, Any, FetchResponse | None]:
        """Send a request of a session and those that follow it; see :class:`SteppingTransport`."""


@runtime_checkable
class SteppingTransport(Protocol):
    """A ``ReplicaTransport`` that can pass answers to the fetcher in the step in which they arrive."""

    async def fetch_in_steps(
        self, address: str, request: FetchRequest, timeout_s: float, steps: Steps
    ) -> FetchResponse | None:
        """Send a fetch to ``host:port``, and let ``steps`` take its answer and determine the next request, and so on.

        The result is the first answer that ``steps`` refuse, or None if they have taken all and have no next request.
        Each request has ``timeout_s``. Raise TidelogError when a call failed as a whole.
        """


def steps_of(fetcher: LeaderFetcher, transport: ReplicaTransport) -> Steps | None:
    """Return the short way of a fetcher over a transport, None without one."""
    return None if _STEPS is None or not isinstance(transport, SteppingTransport) else _STEPS(fetcher, transport)


_STEPS: Final[Callable[[LeaderFetcher, SteppingTransport], Steps] | None] = compiled(
    "tidelog_node.partitions.fetchers._fast_steps", "FetchSteps"
)
