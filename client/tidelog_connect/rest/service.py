"""`Service`: the worker, as the REST API sees it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from tidelog_connect.connectors.registry import Registry
from tidelog_connect.herder.herder import Herder, Result
from tidelog_connect.herder.state import GroupState


class Service(Protocol):
    """A worker. Its methods may block, and are called from threads."""

    registry: Registry

    @property
    def state(self) -> GroupState:
        """The state of the group, as this worker has replayed it."""
        ...

    @property
    def herder(self) -> Herder:
        """The herder over the state."""
        ...

    def cluster_id(self) -> str:
        """Return the id of the cluster that has the topics."""
        ...

    def url(self) -> str:
        """Return the URL of this worker's listener."""
        ...

    def leader_url(self) -> str | None:
        """Return the URL of the worker that changes are forwarded to; None if this one leads.

        Raises:
            RequestError: 503, no worker leads at present.
        """
        ...

    def session_key(self) -> str:
        """Return the key that signs requests between workers, empty if none is known."""
        ...

    def change(self, decide: Callable[[Herder], Result]) -> Any:
        """Decide a change with all earlier ones applied, write and apply its records, and return its response.

        Raises:
            RequestError: what ``decide`` raises, or 503: this worker leads no more.
        """
        ...

    def health(self) -> tuple[bool, str]:
        """Tell whether the worker can serve requests, and why not."""
        ...

    def offsets(self, name: str) -> list[dict[str, Any]]:
        """Return the offsets of a connector, each with partition and offset."""
        ...

    def alter_offsets(self, name: str, offsets: Sequence[tuple[Mapping[str, Any], Mapping[str, Any] | None]]) -> None:
        """Set the offsets of a stopped connector; None resets one.

        Raises:
            RequestError: 400, the offsets are not those of the connector.
        """
        ...

    def reset_offsets(self, name: str) -> None:
        """Delete all offsets of a stopped connector."""
        ...
