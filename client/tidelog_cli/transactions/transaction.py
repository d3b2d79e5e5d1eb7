"""``tidelog transaction``: list, describe, find-hanging, abort, force-terminate."""

from __future__ import annotations

import time
from typing import Annotated, Any

import typer

from tidelog.admin import AdminClient, ProducerDescription, TransactionDescription, TransactionState
from tidelog.message import TopicPartition
from tidelog_cli.groups.reset_offsets import partitions_of
from tidelog_cli.options.completion import complete_topic
from tidelog_cli.options.connection import Session, Yes, connected
from tidelog_cli.options.durations import duration_ms
from tidelog_cli.output.printing import (
    command_group,
    confirm,
    counted_names,
    error_document,
    fail,
    settle,
)
from tidelog_cli.output.times import time_text
from tidelog_foundation.errors import ErrorCode, error_for

app = command_group("List, describe and end transactions, and find hanging ones.")

_Ids = Annotated[list[str], typer.Argument(metavar="ID", help="The transactional ids.")]
_STATES = {state.value.lower(): state for state in TransactionState}


@app.command("list")
@connected
def list_transactions(
    session: Session,
    states: Annotated[
        str | None,
        typer.Option(
            "--state", metavar="STATE,...", help="Only these states: Ongoing, PrepareCommit, Empty and so on."
        ),
    ] = None,
    producer_ids: Annotated[
        list[int] | None, typer.Option("--producer-id", metavar="N", help="Only this producer id. May be repeated.")
    ] = None,
    open_longer_than: Annotated[
        str | None,
        typer.Option(
            "--open-longer-than",
            metavar="DURATION",
            help="Only transactions open for longer than this, such as 90s, 15m or 1h.",
        ),
    ] = None,
    pattern: Annotated[
        str, typer.Option("--pattern", metavar="REGEX", help="Only transactional ids that match as a whole.")
    ] = "",
) -> None:
    """List the transactional ids with their states.

    \b
    Examples:
      tidelog transaction list --state Ongoing
      tidelog transaction list --open-longer-than 15m
    """
    wanted = [_state(name) for name in (states or "").split(",") if name]
    open_ms = None if open_longer_than is None else duration_ms(open_longer_than, "--open-longer-than")
    with session.admin() as admin:
        found = admin.list_transactions(
            states=wanted,
            producer_ids=producer_ids or (),
            duration_ms=open_ms,
            transactional_id_pattern=pattern,
            request_timeout=session.timeout_s,
        ).result()
    records = [
        {
            "transactional_id": line.transactional_id,
            "state": line.state.value,
            "producer_id": line.producer_id,
            "coordinator": line.coordinator_id,
        }
        for line in found.valid
    ]
    session.show("transactions", records, ("transactional_id", "state", "producer_id", "coordinator"))
    fail(found.errors)


@app.command()
@connected
def describe(session: Session, transactional_ids: _Ids) -> None:
    """Show the state, the producer and the open transaction of transactional ids.

    Example: tidelog transaction describe payments
    """
    with session.admin() as admin:
        found, errors = settle(admin.describe_transactions(transactional_ids, request_timeout=session.timeout_s))
    records = [_described(each) for each in found.values()]
    columns = ("transactional_id", "state", "producer_id", "producer_epoch", "timeout_ms", "started", "partitions")
    session.show("transactions", records, columns)
    fail(errors.values())


@app.command("find-hanging")
@connected
def find_hanging(
    session: Session,
    topics: Annotated[
        list[str] | None,
        typer.Option(
            "--topic",
            "-t",
            metavar="TOPIC[:0,1]",
            help="Only this topic, or these partitions of it. May be repeated. Default: all.",
            autocompletion=complete_topic,
        ),
    ] = None,
    max_timeout: Annotated[
        str,
        typer.Option(
            "--max-transaction-timeout", metavar="DURATION", help="The nodes' transaction.max.timeout.ms: 90s, 15m, 1h."
        ),
    ] = "15m",
) -> None:
    """Find open transactions in partitions that no coordinator knows and that nobody will end.

    They stop readers of committed records. abort ends them.

    Example: tidelog transaction find-hanging --topic orders
    """
    limit_ms = duration_ms(max_timeout, "--max-transaction-timeout")
    with session.admin() as admin:
        wanted = _partitions(admin, topics, session.timeout_s)
        found, errors = settle(admin.describe_producers(wanted, request_timeout=session.timeout_s))
        open_since = int(time.time() * 1000) - limit_ms
        suspects = [
            (partition, producer)
            for partition, producers in found.items()
            for producer in producers
            if producer.current_transaction_start_offset is not None and producer.last_timestamp_ms < open_since
        ]
        known = _transactions_of(admin, {producer.producer_id for _, producer in suspects}, session.timeout_s)
    hanging = [
        producer_record(partition, producer)
        for partition, producer in suspects
        if not _is_known(known.get(producer.producer_id), partition)
    ]
    session.show("hanging", hanging, PRODUCER_COLUMNS)
    fail(errors.values())


@app.command()
@connected
def abort(
    session: Session,
    topic: Annotated[str, typer.Option("--topic", "-t", metavar="TOPIC", autocompletion=complete_topic)],
    partition: Annotated[int, typer.Option("--partition", "-p", min=0, metavar="N")],
    start_offset: Annotated[
        int, typer.Option("--start-offset", min=0, metavar="OFFSET", help="The offset at which the transaction begins.")
    ],
    force: Annotated[
        bool, typer.Option("--force", help="Do not ask the coordinators whether they know the transaction.")
    ] = False,
    yes: Yes = False,
) -> None:
    """Abort a hanging transaction in one partition, as find-hanging shows it.

    Refuses a transaction that its coordinator knows: force-terminate ends it in all its partitions.

    Example: tidelog transaction abort --topic orders --partition 0 --start-offset 17 --yes
    """
    place = TopicPartition(topic, partition)
    with session.admin() as admin:
        producers = admin.describe_producers([place], request_timeout=session.timeout_s)[place].result()
        found = [p for p in producers if p.current_transaction_start_offset == start_offset]
        if not found:
            text = f"no transaction of {topic}-{partition} begins at offset {start_offset}"
            raise error_for(ErrorCode.INVALID_TXN_STATE, text)
        producer = found[0]
        if not force:
            _check_hangs(admin, producer.producer_id, place, session.timeout_s)
        confirm(f"abort the transaction of producer {producer.producer_id} in {topic}-{partition}", yes)
        epoch = -1 if producer.coordinator_epoch is None else producer.coordinator_epoch
        admin.abort_transaction(
            place, producer.producer_id, producer.producer_epoch, epoch, request_timeout=session.timeout_s
        ).result()
    document = {"topic": topic, "partition": partition, "start_offset": start_offset, "aborted": True}
    session.done(document, f"aborted the transaction of producer {producer.producer_id} in {topic}-{partition}")


@app.command("force-terminate")
@connected
def force_terminate(session: Session, transactional_ids: _Ids, yes: Yes = False) -> None:
    """Abort the open transactions of transactional ids, including prepared ones, and fence their producers.

    Example: tidelog transaction force-terminate payments --yes
    """
    confirm(f"abort the transactions of {counted_names('transactional id', transactional_ids)}", yes)
    with session.admin() as admin:
        pending = {
            name: admin.force_terminate_transaction(name, request_timeout=session.timeout_s)
            for name in transactional_ids
        }
        ended, errors = settle(pending)
    documents: list[dict[str, Any]] = [{"transactional_id": name, "terminated": True} for name in ended]
    documents += [
        {"transactional_id": name, "terminated": False, "error": error_document(error)}
        for name, error in errors.items()
    ]
    session.done({"transactions": documents}, *(f"terminated {name}" for name in ended))
    fail(errors.values())


PRODUCER_COLUMNS = (
    *("topic", "partition", "producer_id", "producer_epoch", "coordinator_epoch"),
    *("start_offset", "last_record"),
)
"""The fields of a producer in a table."""


def _state(name: str) -> TransactionState:
    try:
        return _STATES[name.strip().lower()]
    except KeyError:
        known = ", ".join(state.value for state in TransactionState if state is not TransactionState.UNKNOWN)
        raise typer.BadParameter(f'"{name}" is not one of {known}', param_hint="--state") from None


def _partitions(admin: AdminClient, topics: list[str] | None, timeout_s: float) -> list[TopicPartition]:
    if topics:
        return partitions_of(admin, topics, timeout_s)
    known = admin.list_topics(timeout=timeout_s).topics
    return [TopicPartition(name, index) for name in sorted(known) for index in sorted(known[name].partitions)]


def _transactions_of(admin: AdminClient, producer_ids: set[int], timeout_s: float) -> dict[int, TransactionDescription]:
    """Return the transactions of producer ids that a coordinator knows."""
    if not producer_ids:
        return {}
    listed = admin.list_transactions(producer_ids=producer_ids, request_timeout=timeout_s).result()
    if listed.errors:
        # A transaction is hanging only if all coordinators have answered.
        fail(listed.errors)
    names = [line.transactional_id for line in listed.valid]
    found, errors = settle(admin.describe_transactions(names, request_timeout=timeout_s))
    fail(error for error in errors.values() if error.code is not ErrorCode.TRANSACTIONAL_ID_NOT_FOUND)
    return {each.producer_id: each for each in found.values()}


def _is_known(transaction: TransactionDescription | None, partition: TopicPartition) -> bool:
    """Return whether a transaction contains a partition, so that its coordinator will end it there."""
    return transaction is not None and partition in transaction.partitions


def _check_hangs(admin: AdminClient, producer_id: int, partition: TopicPartition, timeout_s: float) -> None:
    """Refuse to end a transaction in one partition of several."""
    known = _transactions_of(admin, {producer_id}, timeout_s).get(producer_id)
    if known is not None and _is_known(known, partition):
        place = f"{partition.topic}-{partition.partition}"
        text = f"the transaction in {place} does not hang: transactional id {known.transactional_id} has it open"
        raise error_for(ErrorCode.INVALID_TXN_STATE, f"{text} ({known.state.value}). force-terminate ends it")


def _described(found: TransactionDescription) -> dict[str, Any]:
    return {
        "transactional_id": found.transactional_id,
        "state": found.state.value,
        "producer_id": found.producer_id,
        "producer_epoch": found.producer_epoch,
        "timeout_ms": found.timeout_ms,
        "started": None if found.start_ms is None else time_text(found.start_ms),
        "partitions": [f"{p.topic}-{p.partition}" for p in found.partitions],
    }


def producer_record(partition: TopicPartition, producer: ProducerDescription) -> dict[str, Any]:
    """Return a producer of a partition as the fields of PRODUCER_COLUMNS."""
    return {
        "topic": partition.topic,
        "partition": partition.partition,
        "producer_id": producer.producer_id,
        "producer_epoch": producer.producer_epoch,
        "coordinator_epoch": producer.coordinator_epoch,
        "last_sequence": producer.last_sequence,
        "start_offset": producer.current_transaction_start_offset,
        "last_record": time_text(producer.last_timestamp_ms),
    }
