"""The operator's view of sinks: their states and open transactions, and the end of a sink whose query never returns.

Needs neither Spark nor Arrow. Blocking.
"""

from __future__ import annotations

import re
import uuid
from dataclasses import dataclass, field

from tidelog.admin import TransactionState
from tidelog_foundation.errors import ErrorCode, TidelogError, error_for
from tidelog_spark.sink.clients import shared_admin
from tidelog_spark.sink.execution import Execution, task_pattern
from tidelog_spark.sink.journal import SinkState
from tidelog_spark.sink.journal_topic import read_sinks
from tidelog_spark.sink.options import SinkPlan
from tidelog_spark.sink.protocol import Completion, abandon_sink

_BATCH = "batch:"


@dataclass(frozen=True, slots=True)
class SinkReport:
    """A sink: its state, the time of its last change, and its open transactions with the time of the oldest.

    Times are in milliseconds since 1970. A sink that is not in the journal has the state of a new one and no change.
    """

    sink: str
    state: SinkState = field(default_factory=SinkState)
    changed_ms: int | None = None
    open_transactions: int = 0
    open_since_ms: int | None = None

    @property
    def is_over(self) -> bool:
        """True for the sink of a batch query that has nothing open: nobody will write to it again."""
        return self.sink.startswith(_BATCH) and not self.open_transactions


def report_sinks(plan: SinkPlan) -> list[SinkReport]:
    """Return all sinks that are in the journal or have open transactions, by name.

    Raises:
        TidelogError: the journal cannot be read, or a coordinator does not answer.
    """
    opened = _open_since(plan)
    known = {each.sink: each for each in read_sinks(plan)}
    reports: list[SinkReport] = []
    for sink in sorted({*known, *opened}):
        since = opened.get(sink, [])
        started = [each for each in since if each is not None]
        state, changed_ms = (known[sink].state, known[sink].changed_ms) if sink in known else (SinkState(), None)
        reports.append(SinkReport(sink, state, changed_ms, len(since), min(started, default=None)))
    return reports


def abandon(plan: SinkPlan, sink: str) -> Completion:
    """End the transactions of a sink as the journal has decided, and fence its driver.

    Raises:
        TidelogError: the journal does not have the sink; as `abandon_sink` and `report_sinks`.
    """
    if all(each.sink != sink for each in read_sinks(plan)):
        raise error_for(ErrorCode.RESOURCE_NOT_FOUND, f"the journal of Spark's sinks does not have {sink}")
    return Execution(plan, sink, is_single=False).run(abandon_sink(sink, f"operator-{uuid.uuid4().hex}"))


def _open_since(plan: SinkPlan) -> dict[str, list[int | None]]:
    """Return the start of each open transaction by sink."""
    admin = shared_admin(plan)
    listed = admin.list_transactions(
        states=(TransactionState.ONGOING,), transactional_id_pattern=task_pattern()
    ).result()
    if listed.errors:
        raise listed.errors[0]
    found: dict[str, list[int | None]] = {}
    for name, future in admin.describe_transactions([each.transactional_id for each in listed.valid]).items():
        try:
            described = future.result()
        except TidelogError as error:
            # It has ended, and its id was forgotten, since it was listed.
            if error.code is not ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
                raise
            continue
        matched = re.fullmatch(task_pattern(), name)
        if matched is not None and described.state is TransactionState.ONGOING:
            found.setdefault(matched["sink"], []).append(described.start_ms)
    return found
