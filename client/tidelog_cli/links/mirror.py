"""``tidelog mirror``: mirror topics of links (create to resume), and ``run``, which does MirrorMaker 2's work."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from typing import Annotated

import typer

from tidelog.admin import AdminClient, MirrorTopicInfo, MirrorTopicState
from tidelog_cli.links.mirror_run import run
from tidelog_cli.options.connection import Session, Yes, connected
from tidelog_cli.output.printing import command_group, confirm, counted_names, fail, settle
from tidelog_foundation.errors import ErrorCode, error_for

app = command_group("Manage mirror topics of cluster links, or run a mirror as MirrorMaker 2 does.")
app.command()(run)

_COLUMNS = ("topic", "link", "state", "partitions", "lag")
_PARTITION_COLUMNS = ("topic", "partition", "state", "log_end_offset", "high_watermark", "lag", "error")
_POLL_S = 0.1
_Topics = Annotated[list[str], typer.Argument(metavar="TOPIC", help="The topics.")]
_OfLink = Annotated[str, typer.Option("--link", "-l", metavar="LINK", help="Only mirror topics of this link.")]
_Wait = Annotated[
    float, typer.Option("--wait", metavar="SECONDS", help="Wait until the topics are writable, for this long at most.")
]


@app.command()
@connected
def create(
    session: Session,
    link: Annotated[str, typer.Argument(metavar="LINK", help="The link to the cluster that has the topics.")],
    topics: _Topics,
    replication_factor: Annotated[
        int,
        typer.Option("--replication-factor", "-r", metavar="NUMBER", help="Default: default.replication.factor."),
    ] = -1,
) -> None:
    """Create mirrors of topics of another cluster (Confluent: kafka-mirrors --create).

    Example: tidelog mirror create from-kafka orders payments
    """
    with session.admin() as admin:
        futures = admin.create_mirror_topics(
            link, topics, replication_factor=replication_factor, request_timeout=session.timeout_s
        )
        _finish(session, "created", futures)


@app.command("list")
@connected
def list_mirrors(session: Session, link: _OfLink = "") -> None:
    """List mirror topics with their states and lags (Confluent: kafka-mirrors --list).

    Example: tidelog mirror list --link from-kafka
    """
    rows = [
        {"topic": m.topic, "link": m.link_name, "state": m.state.name, "partitions": m.num_partitions, "lag": m.lag}
        for m in _described(session, link).values()
    ]
    session.show("mirrors", rows, _COLUMNS)


@app.command()
@connected
def describe(
    session: Session,
    topics: Annotated[list[str] | None, typer.Argument(metavar="TOPIC", help="The topics. Default: all.")] = None,
    link: _OfLink = "",
) -> None:
    """Describe the partitions of mirror topics as their leaders see them (Confluent: kafka-mirrors --describe).

    Example: tidelog mirror describe orders
    """
    found = _described(session, link)
    unknown = [topic for topic in topics or () if topic not in found]
    rows = [
        {
            "topic": mirror.topic,
            "partition": p.partition,
            "state": mirror.state.name,
            "log_end_offset": p.log_end_offset,
            "high_watermark": p.high_watermark,
            "lag": p.lag,
            "error": None if p.error is None else str(p.error),
        }
        for mirror in found.values()
        if not topics or mirror.topic in topics
        for _, p in sorted(mirror.partitions.items())
    ]
    session.show("partitions", rows, _PARTITION_COLUMNS)
    fail(error_for(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{topic} is no mirror topic") for topic in unknown)


@app.command()
@connected
def promote(session: Session, topics: _Topics, wait: _Wait = 60.0) -> None:
    """Make mirror topics writable once they have all records of the source (Confluent: kafka-mirrors --promote).

    Stop the producers of the source first.

    Example: tidelog mirror promote orders
    """
    with session.admin() as admin:
        _, errors = settle(admin.promote_mirror_topics(topics, request_timeout=session.timeout_s))
        fail(errors.values())
        _await_stopped(session, admin, topics, wait)
    session.done({"promoted": topics}, f"promoted {counted_names('topic', topics)}")


@app.command()
@connected
def failover(session: Session, topics: _Topics, yes: Yes = False) -> None:
    """Make mirror topics writable at once, without the records that they lack (Confluent: kafka-mirrors --failover).

    Example: tidelog mirror failover orders --yes
    """
    confirm(f"fail over {counted_names('topic', topics)}", yes, "Records that have not been copied are lost.")
    with session.admin() as admin:
        _finish(session, "failed over", admin.failover_mirror_topics(topics, request_timeout=session.timeout_s))


@app.command()
@connected
def pause(session: Session, topics: _Topics) -> None:
    """Stop copying mirror topics for a time; they stay read-only (Confluent: kafka-mirrors --pause).

    Example: tidelog mirror pause orders
    """
    with session.admin() as admin:
        _finish(session, "paused", admin.pause_mirror_topics(topics, request_timeout=session.timeout_s))


@app.command()
@connected
def resume(session: Session, topics: _Topics) -> None:
    """Copy mirror topics again that are paused or failed (Confluent: kafka-mirrors --resume).

    Example: tidelog mirror resume orders
    """
    with session.admin() as admin:
        _finish(session, "resumed", admin.resume_mirror_topics(topics, request_timeout=session.timeout_s))


def _described(session: Session, link: str) -> dict[str, MirrorTopicInfo]:
    with session.admin() as admin:
        return admin.describe_mirror_topics(link, request_timeout=session.timeout_s).result()


def _finish(session: Session, verb: str, futures: Mapping[str, Future[None]]) -> None:
    done, errors = settle(futures)
    if done:
        session.done({verb.replace(" ", "_"): list(done)}, f"{verb} {counted_names('topic', list(done))}")
    fail(errors.values())


def _await_stopped(session: Session, admin: AdminClient, topics: Sequence[str], wait_s: float) -> None:
    deadline = time.monotonic() + wait_s
    while True:
        found = admin.describe_mirror_topics(request_timeout=session.timeout_s).result()
        pending = [t for t in topics if t in found and found[t].state is not MirrorTopicState.STOPPED]
        if not pending:
            return
        if time.monotonic() >= deadline:
            text = f"{counted_names('topic', pending)} still waits for records of the source after {wait_s:g} s"
            fail([error_for(ErrorCode.REQUEST_TIMED_OUT, f"{text}; the promotion goes on")])
        time.sleep(_POLL_S)
