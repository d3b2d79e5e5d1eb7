"""The authorization of gRPC calls: one rule per method, applied before its handler."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import TypeVar

from tidelog_foundation.authorization import Access, Authorizer, RequestOrigin
from tidelog_foundation.authorization.rules import CLUSTER, Rule
from tidelog_foundation.ids import AclId
from tidelog_foundation.requests.acls import AclBinding, AclOperation
from tidelog_foundation.transport.services import Caller

Q = TypeVar("Q")
R = TypeVar("R")


class AuthorizingGuard:
    """The guard of a server's services, by the names of methods: the ``rules``, and the ``streams``.

    A stream has the operation on the cluster that it needs, None if everybody may open it. ``acls`` returns the ACLs of
    the metadata log, None while they are not known, and ``topic_name`` the name of the topic with an id. ``listener``
    is the listener's name.
    """

    def __init__(
        self,
        authorizer: Authorizer,
        rules: Mapping[str, Rule],
        streams: Mapping[str, AclOperation | None],
        acls: Callable[[], Mapping[AclId, AclBinding] | None],
        topic_name: Callable[[bytes], str | None],
        listener: str,
    ) -> None:
        self._authorizer = authorizer
        self._rules = rules
        self._streams = streams
        self._acls = acls
        self._topic_name = topic_name
        self._listener = listener

    async def start(self) -> None:
        """Start the authorizer, before the services are served."""
        await self._authorizer.start()

    async def answer(self, method: str, request: Q, caller: Caller, handle: Callable[[Q], Awaitable[R]]) -> R:
        """Return the response of ``handle`` to the allowed part of a request, with the denials.

        Raises:
            TidelogError: The request is denied as a whole.
        """
        response: R = await self._rules[method](self.access(method, caller), request, handle)
        return response

    def admit(self, method: str, caller: Caller) -> None:
        """Return if the caller may open a stream.

        Raises:
            TidelogError: CLUSTER_AUTHORIZATION_FAILED.
        """
        operation = self._streams[method]
        if operation is not None:
            self.access(method, caller).require(operation, CLUSTER)

    def access(self, method: str, caller: Caller) -> Access:
        """Return the decisions about the requests of a call, under the current ACLs."""
        acls = self._acls()
        if caller.access is not None and caller.access[0] is acls:
            return caller.access[1]
        if acls is not None:
            self._authorizer.set_acls(acls)
        origin = RequestOrigin(caller.principal, caller.host, caller.client_id, method, self._listener)
        access = Access(self._authorizer, origin, self._topic_name)
        caller.access = acls, access
        return access
