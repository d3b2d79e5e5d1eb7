"""Finds where the bootstrap servers serve gRPC: at their addresses, or where their Kafka listeners say.

gRPC is tried first, so that an address of a gRPC listener costs nothing more. What fails there is probed, which tells a
Kafka listener of Tidelog, whose node says where gRPC is, from what is not Tidelog at all.
"""

from __future__ import annotations

from collections.abc import Collection

from tidelog.cluster.probe import MAX_TIMEOUT_S, NoAnswer, probe
from tidelog.cluster.probe_answers import Answer, Protocol
from tidelog_foundation.errors import ErrorCode, TidelogError, error_for

_UNIMPLEMENTED = "UNIMPLEMENTED: "
_LEAST_TIMEOUT_S = 0.5
"""So long a call may outlast its own timeout, to say why there is no answer."""
PROBED = frozenset(
    (ErrorCode._TRANSPORT, ErrorCode._RESOLVE, ErrorCode.REQUEST_TIMED_OUT, ErrorCode.UNSUPPORTED_VERSION)
)
"""Errors of a call that say that perhaps no node of Tidelog serves gRPC at the address."""


class Bootstrap:
    """The bootstrap servers of one client, as they were given, and what is known of each. On the network thread."""

    def __init__(self, servers: tuple[str, ...]) -> None:
        self.servers = servers
        self._targets: dict[str, str] = {}
        self._foreign: set[str] = set()

    def target(self, server: str) -> str:
        """Return where a bootstrap server serves gRPC as far as is known; of other addresses the address itself."""
        return self._targets.get(server, server)

    def are_foreign(self, servers: Collection[str]) -> bool:
        """Return whether none of the servers is Tidelog's, so that it is no use to ask again."""
        return self._foreign.issuperset(servers)

    async def find(self, server: str, failure: TidelogError, timeout_s: float) -> str | None:
        """Return where gRPC is after a call failed at :meth:`target`; None where a probe of it finds nothing new.

        Raises:
            TidelogError: no node of Tidelog answers at the address; says what does, or why nothing does.
        """
        self._foreign.discard(server)
        if failure.code is ErrorCode.UNSUPPORTED_VERSION:
            if failure.message.startswith(_UNIMPLEMENTED):
                raise self._refuse(server, "gRPC is served there, but not for clients: it may be a controller")
            return None
        found = await probe(server, min(max(timeout_s, _LEAST_TIMEOUT_S), MAX_TIMEOUT_S))
        match found:
            case NoAnswer():
                raise error_for(found.code, f"{server}: {found.reason}")
            case Answer(Protocol.GRPC):
                self._targets.pop(server, None)
                return None
            case Answer(Protocol.TIDELOG):
                return self._follow(server, found.grpc_listener, failure)
        raise self._refuse(server, f"{found.protocol.value} answers there")

    def _follow(self, server: str, listener: str, failure: TidelogError) -> str:
        if not listener:
            raise error_for(ErrorCode._TRANSPORT, f"{server}: the node does not know yet where it serves gRPC")
        if self._targets.get(server) == listener:
            text = f"{server}: a node that serves gRPC at {_with_address(failure.message, listener)}"
            raise error_for(failure.code, text)
        self._targets[server] = listener
        return listener

    def _refuse(self, server: str, reason: str) -> TidelogError:
        self._foreign.add(server)
        return error_for(ErrorCode._TRANSPORT, f"{server}: {reason}")


def _with_address(text: str, listener: str) -> str:
    return text if text.startswith(listener) else f"{listener}: {text}"
