"""The addresses of one controller, one per listener (KIP-853's VotersRecord)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from tidelog_foundation.dataclass import dataclass
from tidelog_foundation.requests.addresses import ControllerEndpoint

ANY_LISTENER = ""
"""The name of an address that serves for every listener without an address of its own."""


@dataclass(frozen=True, slots=True, init=False)
class Endpoints:
    """Addresses by the name of the listener, in the order of the names; immutable.

    Files and logs of earlier versions and operators' requests have addresses without a name.
    """

    _endpoints: tuple[ControllerEndpoint, ...]

    def __init__(self, endpoints: Iterable[ControllerEndpoint] = ()) -> None:
        """Of several endpoints with one name, the last one counts."""
        named = {endpoint.name: endpoint for endpoint in endpoints}
        object.__setattr__(self, "_endpoints", tuple(named[name] for name in sorted(named)))

    @classmethod
    def at(cls, host: str, port: int, listener: str = ANY_LISTENER) -> Endpoints:
        """Return the endpoints of a controller with one address."""
        return cls((ControllerEndpoint(host, port, listener),))

    def address(self, listener: str) -> tuple[str, int] | None:
        """Return the (host, port) of a listener; None if it has none."""
        named = {endpoint.name: endpoint for endpoint in self._endpoints}
        found = named.get(listener) or named.get(ANY_LISTENER)
        return None if found is None else (found.host, found.port)

    def agrees_with(self, wanted: Endpoints) -> bool:
        """Return whether these are the wanted endpoints. One without a name may be any of these."""
        addresses = {(endpoint.host, endpoint.port) for endpoint in self._endpoints}
        unnamed = {(endpoint.host, endpoint.port) for endpoint in wanted if endpoint.name == ANY_LISTENER}
        return self == wanted or (len(unnamed) == len(wanted) and unnamed <= addresses)

    def __iter__(self) -> Iterator[ControllerEndpoint]:
        return iter(self._endpoints)

    def __len__(self) -> int:
        return len(self._endpoints)

    def __str__(self) -> str:
        return ", ".join(map(str, self._endpoints))
