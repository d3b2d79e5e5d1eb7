"""Client quotas of the gRPC listener: calls of a client over its quotas wait before their requests are read.

A connection of gRPC carries all calls of a client, those of its group membership too, which must not wait for a
consumer's quota. So a quota delays the calls that it governs. The request percentage, whose delays are short, delays
all of them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, Final

from tidelog_foundation.measured_steps import MeasuredSteps
from tidelog_foundation.requests.acls import AclOperation
from tidelog_foundation.transport.authorization import AuthorizingGuard
from tidelog_foundation.transport.services import Caller
from tidelog_node.quotas.client_quotas import ClientQuotas, QuotaKind
from tidelog_node.quotas.usage import RequestUsage

THROTTLE_TIME_KEY: Final = "tidelog-throttle-time-ms"
"""The trailing metadata with the milliseconds for which the client's next call of the kind is delayed."""
_METHODS_OF_NODES: Final = frozenset(("Fetch", "WriteTxnMarkers", "AddPartitionsToTxn"))
_KINDS: Final[Mapping[str, QuotaKind]] = {
    "Produce": QuotaKind.PRODUCE,
    "ProduceStream": QuotaKind.PRODUCE,
    "Fetch": QuotaKind.FETCH,
    "CreateTopics": QuotaKind.MUTATION,
    "DeleteTopics": QuotaKind.MUTATION,
    "CreatePartitions": QuotaKind.MUTATION,
}


class CallQuotas:
    """The gate of the node's gRPC calls."""

    def __init__(self, quotas: ClientQuotas, guard: AuthorizingGuard | None = None) -> None:
        """Without a guard, every caller may act for the cluster."""
        self._quotas = quotas
        self._guard = guard

    @property
    def is_active(self) -> bool:
        """True if any client has a limit."""
        return self._quotas.is_enabled

    async def run(self, method: str, caller: Caller, call: Callable[[], Coroutine[Any, Any, Any]]) -> Any:
        """Run a call with one response once its client is not delayed, and return the response."""
        if method in _METHODS_OF_NODES and caller.claims_to_be_node and self._is_node(method, caller):
            return await call()
        quotas, user, client_id = self._quotas, caller.principal.name, caller.client_id
        await wait_for_turn(quotas, _KINDS.get(method, QuotaKind.REQUEST), user, client_id)
        usage = RequestUsage(quotas, user, client_id)
        caller.usage = usage
        response = await MeasuredSteps(call(), usage)
        delay_ms = usage.answer()
        if delay_ms:
            caller.send_metadata(THROTTLE_TIME_KEY, str(delay_ms))
        return response

    def _is_node(self, method: str, caller: Caller) -> bool:
        if self._guard is None:
            return True
        return self._guard.access(method, caller).on_cluster(AclOperation.CLUSTER_ACTION, log=False)


async def wait_for_turn(quotas: ClientQuotas, kind: QuotaKind, user: str, client_id: str) -> None:
    """Wait as long as a client's requests of a kind are delayed."""
    # Other requests of the client may extend the delay meanwhile.
    while delay_ms := quotas.delay_ms(kind, user, client_id):  # noqa: ASYNC110
        await asyncio.sleep(delay_ms / 1000)


def usage_of(caller: Caller) -> RequestUsage | None:
    """Return the usage of a call's request, or None if it is not measured."""
    usage = caller.usage
    assert usage is None or isinstance(usage, RequestUsage)
    return usage
