"""The quota of mutations: the rate at which clients create and delete partitions (KIP-599).

The leading controller counts the partitions of each topic that a request creates, deletes or extends. With a strict
quota, a topic is refused while the client has a debt; one that begins without a debt is accepted however large it is.
With a permissive quota, for the clients of old versions, nothing is refused. Both delay the client for the time of the
debt. A new leader begins without debts, as Kafka's does.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from tidelog_foundation.errors import ErrorCode, error_for
from tidelog_foundation.quotas.limits import ClientLimits
from tidelog_foundation.quotas.rate import Windows
from tidelog_foundation.quotas.recency import RecentClients
from tidelog_foundation.quotas.token_bucket import TokenBucket
from tidelog_foundation.requests.quotas import CONTROLLER_MUTATION_RATE, QuotaClient, QuotaEntity

_NO_QUOTAS: Final[Mapping[QuotaEntity, Mapping[str, float]]] = {}


class MutationQuotas:
    """The tokens of all clients with a limit."""

    def __init__(self, windows: Windows) -> None:
        self._windows = windows
        self._quotas = _NO_QUOTAS
        self._limits = ClientLimits(_NO_QUOTAS, CONTROLLER_MUTATION_RATE)
        self._buckets: RecentClients[tuple[str, str], TokenBucket] = RecentClients(windows.span_ms)

    def quota_of(
        self, quotas: Mapping[QuotaEntity, Mapping[str, float]], client: QuotaClient | None, now_ms: int
    ) -> MutationQuota:
        """Return the quota of a request, under the quotas of an image."""
        if quotas is not self._quotas:
            self._quotas, self._limits = quotas, ClientLimits(quotas, CONTROLLER_MUTATION_RATE)
        shared = None if client is None else self._limits.limit_of(client.user, client.client_id)
        if client is None or shared is None:
            return MutationQuota(None, is_strict=False, now_ms=now_ms)
        limit, key = shared.limit, (shared.user, shared.client_id)
        bucket = self._buckets.use(key, now_ms, lambda: TokenBucket(self._windows, limit, now_ms))
        bucket.limit = limit
        return MutationQuota(bucket, is_strict=client.is_strict, now_ms=now_ms)


class MutationQuota:
    """The quota of one request; without a bucket there is no limit."""

    def __init__(self, bucket: TokenBucket | None, *, is_strict: bool, now_ms: int) -> None:
        self._bucket = bucket
        self._is_strict = is_strict
        self._now_ms = now_ms
        self.throttle_time_ms = 0
        """The milliseconds for which the client is delayed."""

    def take(self, partitions: int) -> None:
        """Count the partitions of one topic.

        Raises:
            TidelogError: THROTTLING_QUOTA_EXCEEDED: The quota is strict, and the client has a debt.
        """
        if self._bucket is None:
            return
        if self._is_strict:
            debt_ms = self._bucket.debt_ms(self._now_ms)
            if debt_ms:
                self.throttle_time_ms = debt_ms
                raise error_for(ErrorCode.THROTTLING_QUOTA_EXCEEDED, "The throttling quota has been exceeded.")
        self._bucket.take(partitions, self._now_ms)
        if not self._is_strict:
            self.throttle_time_ms = self._bucket.debt_ms(self._now_ms)
