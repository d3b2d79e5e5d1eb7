"""The transactions that a driver ends, by requests to their coordinators and without producers. Blocking."""

from __future__ import annotations

import asyncio

from tidelog.admin import TransactionDescription, TransactionState
from tidelog.cluster.loop_time import now_ms
from tidelog.producer.config import ProducerConfig
from tidelog.producer.coordination import Coordination
from tidelog.producer.core.transaction_errors import Consequence, consequence_for
from tidelog.producer.core.transaction_requests import EndTransaction, InitProducer, ProducerGiven, Request
from tidelog_foundation.errors import ConfigError, ErrorCode, TidelogError
from tidelog_foundation.transport.loop import run_sync
from tidelog_spark.clients import cluster_client
from tidelog_spark.sink.clients import shared_admin, shared_coordinators
from tidelog_spark.sink.journal import Prepared
from tidelog_spark.sink.options import SinkPlan
from tidelog_spark.sink.protocol import Described

FENCED = (ErrorCode._FENCED, ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH)
"""The errors of a producer whose transactional id another one has taken."""
_TIMEOUT_MS = 120_000
"""The limit on the retries of one request, as that of ``init_transactions()``."""
_CONCURRENT_BACKOFF_MS = 20
"""The wait while the markers of the transaction before are written."""
_COMMITTED = (TransactionState.PREPARE_COMMIT, TransactionState.COMPLETE_COMMIT)
_ENDED = (TransactionState.PREPARE_ABORT, TransactionState.COMPLETE_ABORT, TransactionState.EMPTY)


class OwnedTransactions:
    """The transactional ids that one driver has taken over."""

    def __init__(self, plan: SinkPlan) -> None:
        self._plan = plan
        self._client = cluster_client(plan.client_config)
        self._coordinators = shared_coordinators(plan)
        self._taken: dict[str, ProducerGiven] = {}

    def take_over(self, transactional_ids: tuple[str, ...]) -> tuple[Prepared, ...]:
        """Fence the producers of transactional ids, and return their open transactions, which are kept.

        Raises:
            ConfigError: the nodes do not permit two-phase commits.
            TidelogError: a coordinator refuses, or none answers.
        """
        self._taken = run_sync(self._take_all(transactional_ids))
        return tuple(
            Prepared(name, given.kept.producer_id, given.kept.epoch)
            for name, given in self._taken.items()
            if given.kept is not None
        )

    def complete(self, committed: tuple[str, ...], aborted: tuple[str, ...]) -> tuple[str, ...]:
        """Commit and abort transactions that were taken over; return the ids that another producer has taken since.

        Raises:
            TidelogError: a coordinator refuses, or none answers.
        """
        ends = {**dict.fromkeys(committed, True), **dict.fromkeys(aborted, False)}
        are_ended = run_sync(self._end_all(ends))
        return tuple(name for name, is_ended in zip(ends, are_ended, strict=True) if not is_ended)

    def describe(self, committed: tuple[Prepared, ...]) -> Described:
        """Return which transactions of a committed batch are over.

        Raises:
            TidelogError: a coordinator refuses, or none answers.
        """
        found = shared_admin(self._plan).describe_transactions([each.transactional_id for each in committed])
        is_committed: list[str] = []
        ended: list[str] = []
        for each in committed:
            try:
                described = found[each.transactional_id].result()
            except TidelogError as error:
                if error.code is not ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
                    raise
                # Coordinators forget an id a week after the end of its last transaction, never while one is open.
                is_committed.append(each.transactional_id)
                continue
            if described.state in _ENDED:
                ended.append(each.transactional_id)
            elif described.state in _COMMITTED and _is_of(described, each):
                is_committed.append(each.transactional_id)
        return Described(tuple(is_committed), tuple(ended))

    async def _take_all(self, transactional_ids: tuple[str, ...]) -> dict[str, ProducerGiven]:
        await self._coordinators.find_all(transactional_ids, timeout_ms=_TIMEOUT_MS)
        given = await asyncio.gather(*map(self._take, transactional_ids))
        return dict(zip(transactional_ids, given, strict=True))

    async def _end_all(self, ends: dict[str, bool]) -> list[bool]:
        return list(await asyncio.gather(*(self._end(name, commits) for name, commits in ends.items())))

    async def _take(self, transactional_id: str) -> ProducerGiven:
        try:
            given = await self._execute(transactional_id, InitProducer(None, keep_prepared=True))
        except TidelogError as error:
            raise explained(error) from error
        assert isinstance(given, ProducerGiven)
        return given

    async def _end(self, transactional_id: str, commits: bool) -> bool:
        given = self._taken[transactional_id]
        try:
            await self._execute(transactional_id, EndTransaction(given.producer, commits, given.version))
        except TidelogError as error:
            if error.code in FENCED:
                return False
            raise
        return True

    async def _execute(self, transactional_id: str, request: Request) -> object:
        config = ProducerConfig(
            bootstrap_servers=self._plan.client_config.bootstrap_servers,
            transactional_id=transactional_id,
            transaction_two_phase_commit_enable=True,
        )
        coordination = Coordination(self._client, config, self._coordinators)
        deadline_ms = now_ms() + _TIMEOUT_MS
        attempt = 0
        while True:
            try:
                return await coordination.execute(request)
            except TidelogError as error:
                attempt += 1
                is_busy = error.code is ErrorCode.CONCURRENT_TRANSACTIONS
                wait_ms = _CONCURRENT_BACKOFF_MS if is_busy else self._client.backoff.wait_ms(attempt)
                is_final = consequence_for(request, error) is not Consequence.RETRY
                if is_final or now_ms() + wait_ms >= deadline_ms:
                    raise
            await asyncio.sleep(wait_ms / 1000)


def explained(error: TidelogError) -> TidelogError:
    """Return the error of InitProducerId, as the mistake in the configuration that it may be."""
    if error.code is not ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED:
        return error
    return ConfigError(
        'the option sink.semantics is "exactly-once", which needs transaction.two.phase.commit.enable=true on '
        "all nodes and, with ACLs, the permissions for it: change this, or set the option sink.semantics to "
        f'"at-least-once"; the nodes answer: {error.message}'
    )


def _is_of(described: TransactionDescription, prepared: Prepared) -> bool:
    """Return False for a transaction of an earlier batch, as a coordinator that was replaced may still describe it."""
    return described.producer_id == prepared.producer_id and described.producer_epoch >= prepared.epoch
