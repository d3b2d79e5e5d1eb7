"""No part of the SDK waits in silence: what a line of the log says, when it is written, and who writes one."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from tidelog import Consumer, Producer, TopicPartition
from tidelog.admin import AdminClient
from tidelog.testing import FakeCluster, cluster_folder
from tidelog.testing.cluster_folder import FolderLocks
from tidelog.testing.process import Place, ProcessGroup, ProcessHandle
from tidelog_cli.commands import app
from tidelog_foundation import waiting
from tidelog_foundation.errors import ConfigError, ErrorCode, KafkaException
from tidelog_foundation.waiting import ReportedBlock, ReportedWait, WaitWatch, watch_waits

_NOBODY = "127.0.0.1:1"


@pytest.fixture
def lines(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> Callable[[], list[str]]:
    """Return what is logged of waits; they are long after a tenth of a second."""
    monkeypatch.setattr(waiting, "SILENT_S", 0.1)
    monkeypatch.setattr(waiting, "AGAIN_S", 0.2)
    monkeypatch.setattr(waiting, "_WATCH_EVERY_S", 0.05)
    caplog.set_level(logging.WARNING, "tidelog.waiting")
    return lambda: [r.getMessage() for r in caplog.records if r.name == "tidelog.waiting"]


def until(condition: Callable[[], object], timeout_s: float = 10.0) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


async def logged(lines: Callable[[], list[str]]) -> None:
    while not lines():  # noqa: ASYNC110  # the log has no event
        await asyncio.sleep(0.01)


def test_long_wait_is_logged_with_its_reason_and_again(lines: Callable[[], list[str]]) -> None:
    async def main() -> None:
        with ReportedWait("the tide") as wait:
            while len(lines()) < 2:
                wait.note("the moon is late")
                await asyncio.sleep(0.01)

    asyncio.run(main())
    assert lines() == ["Still waiting after 0 s for the tide: the moon is late"] * 2


def test_wait_inside_of_another_is_part_of_its_line(lines: Callable[[], list[str]]) -> None:
    async def main() -> None:
        with ReportedWait("the tide"), ReportedWait("the moon") as moon:
            moon.note("clouds")
            await logged(lines)

    asyncio.run(main())
    assert lines() == ["Still waiting after 0 s for the tide, for the moon: clouds"]


def test_wait_that_blocks_its_thread_is_logged_with_its_reason_and_again(lines: Callable[[], list[str]]) -> None:
    with ReportedBlock("the tide") as wait:
        wait.note("the moon is late")
        until(lambda: len(lines()) == 2)
    assert lines() == ["Still waiting after 0 s for the tide: the moon is late"] * 2


def test_process_that_does_not_stop_is_named_before_it_is_killed(
    lines: Callable[[], list[str]], tmp_path: Path
) -> None:
    ignores = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print(1, flush=True); time.sleep(60)"
    group = ProcessGroup()
    handle = ProcessHandle(1, "tidelog_node", Place(launcher=("-c", ignores)), tmp_path, group)
    try:
        handle.configure({})
        handle.start()
        until(lambda: handle.log_path.read_text())
        assert handle.stop(0.5) == -signal.SIGKILL
    finally:
        group.close()
    assert lines()[0] == "Still waiting after 0 s for node 1 to stop"


def test_folder_that_processes_of_an_earlier_cluster_use_is_named_while_it_is_waited_for(
    lines: Callable[[], list[str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster_folder, "_MEMBERS_TIMEOUT_S", 0.5)
    locks = FolderLocks.take(tmp_path)
    member = os.dup(locks.members_fd)
    locks.release()
    try:
        with pytest.raises(ConfigError, match="is in use by processes of an earlier local cluster"):
            FolderLocks.take(tmp_path)
    finally:
        os.close(member)
    assert lines()[0] == f"Still waiting after 0 s for processes of an earlier local cluster in {tmp_path} to end"


def test_short_wait_is_not_logged(lines: Callable[[], list[str]]) -> None:
    async def main() -> None:
        with ReportedWait("the tide"):
            await asyncio.sleep(0)
        await asyncio.sleep(0.15)

    asyncio.run(main())
    assert lines() == []


def test_wait_of_a_task_that_outlives_the_wait_that_began_it_is_logged(lines: Callable[[], list[str]]) -> None:
    async def later() -> None:
        await asyncio.sleep(0.01)
        with ReportedWait("the ebb"):
            await logged(lines)

    async def main() -> None:
        with ReportedWait("the tide"):
            task = asyncio.create_task(later())
        await task

    asyncio.run(main())
    assert lines() == ["Still waiting after 0 s for the ebb"]


def test_watch_logs_what_stays_under_one_key_and_not_what_changes(caplog: pytest.LogCaptureFixture) -> None:
    now_s = 0.0
    watch = WaitWatch("acknowledgements", lambda: now_s)
    for second in range(61):
        now_s = float(second)
        watch.see({second: "healthy-0: node 1 has not answered"} | ({0: "slow-0: no leader"} if second < 50 else {}))
    assert [r.getMessage() for r in caplog.records] == [
        "Still waiting after 5 s for acknowledgements: slow-0: no leader",
        "Still waiting after 35 s for acknowledgements: slow-0: no leader",
    ]


def test_watch_names_three_of_many(caplog: pytest.LogCaptureFixture) -> None:
    times_s = iter((0.0, 5.0))
    watch = WaitWatch("x", lambda: next(times_s))
    for _ in range(2):
        watch.see({n: f"t-{n}" for n in range(5)})
    assert [r.getMessage() for r in caplog.records] == ["Still waiting after 5 s for x: t-0; t-1; t-2 and 2 more"]


@pytest.fixture
def cluster() -> Iterator[FakeCluster]:
    with FakeCluster() as running:
        yield running


def in_background(work: Callable[[], Any]) -> threading.Thread:
    def run() -> None:
        with pytest.raises(KafkaException):
            work()

    thread = threading.Thread(target=run)
    thread.start()
    return thread


def test_calls_that_no_broker_answers_say_so(lines: Callable[[], list[str]]) -> None:
    with AdminClient({"bootstrap.servers": _NOBODY}) as admin:
        thread = in_background(lambda: admin.list_topics(timeout=2))
        until(lambda: any(_NOBODY in line for line in lines()))
        thread.join()
    said = "".join(lines())
    assert f"for a broker to answer: {_NOBODY}: Connection refused" in said


def test_command_line_shows_what_it_waits_for(lines: Callable[[], list[str]]) -> None:
    result = CliRunner().invoke(app, ["topic", "list", "-b", _NOBODY, "--timeout", "1"])
    assert "Still waiting after 0 s for a broker to answer: " in result.stderr
    assert lines()


def test_producer_says_what_its_records_wait_for(cluster: FakeCluster, lines: Callable[[], list[str]]) -> None:
    cluster.create_topic("t")
    cluster.fail_next("Produce", ErrorCode.NOT_ENOUGH_REPLICAS, times=10_000)
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "retry.backoff.ms": 10})
    producer.produce("t", b"v")
    producer.produce("not-there", b"v")
    until(lambda: any("acknowledgements: t-0: NOT_ENOUGH_REPLICAS" in line for line in lines()))
    until(lambda: any('has not said that there is a topic "not-there"' in line for line in lines()))
    producer.purge()
    producer.flush(5)


def test_consumer_says_what_it_waits_for(cluster: FakeCluster, lines: Callable[[], list[str]]) -> None:
    cluster.create_topic("t")
    cluster.fail_next("Fetch", ErrorCode.KAFKA_STORAGE_ERROR, times=10_000)
    with Consumer(
        {"bootstrap.servers": cluster.bootstrap_servers, "retry.backoff.ms": 10, "group.id": "g"}
    ) as consumer:
        consumer.assign([TopicPartition("t", 0, 0)])
        until(lambda: consumer.poll(0.01) or any("records to read: t-0: KAFKA_STORAGE_ERROR" in x for x in lines()))


def test_member_says_that_its_group_has_no_coordinator(cluster: FakeCluster, lines: Callable[[], list[str]]) -> None:
    cluster.create_topic("t")
    cluster.fail_next("FindCoordinator", ErrorCode.COORDINATOR_NOT_AVAILABLE, times=10_000)
    with Consumer({"bootstrap.servers": cluster.bootstrap_servers, "group.id": "g"}) as consumer:
        consumer.subscribe(["t"])
        until(lambda: consumer.poll(0.01) or any('coordinator of group "g": COORDINATOR_NOT_A' in x for x in lines()))
        cluster.clear_faults()


def test_commit_that_is_not_answered_says_so(cluster: FakeCluster, lines: Callable[[], list[str]]) -> None:
    cluster.create_topic("t")
    cluster.fail_next("OffsetCommit", ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, times=10_000)
    with Consumer({"bootstrap.servers": cluster.bootstrap_servers, "group.id": "g"}) as consumer:
        consumer.commit(offsets=[TopicPartition("t", 0, 0)], asynchronous=True)
        until(lambda: any('committed offsets: group "g": COORDINATOR_LOAD_IN_PROGRESS' in x for x in lines()))
        cluster.clear_faults()


def test_watch_ends_with_its_task(lines: Callable[[], list[str]]) -> None:
    async def main() -> None:
        task = asyncio.create_task(watch_waits("x", lambda: {"k": "v"}))
        await logged(lines)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    asyncio.run(main())
    assert lines()[0] == "Still waiting after 0 s for x: v"


def test_replica_that_is_not_there_to_move_is_named_while_the_command_waits(
    lines: Callable[[], list[str]], tmp_path: Path
) -> None:
    file = tmp_path / "move.json"
    item = {"topic": "a", "partition": 0, "replicas": [1], "log_dirs": ["/fake"]}
    file.write_text(json.dumps({"partitions": [item]}))
    with FakeCluster() as cluster:
        cluster.create_topic("a", 1)
        cluster.fail_next("AlterReplicaLogDirs", ErrorCode.REPLICA_NOT_AVAILABLE, times=1_000)
        named = ("--reassignment-json-file", str(file), "-b", cluster.bootstrap_servers, "--timeout", "1")
        found = CliRunner().invoke(app, ["partition", "reassign", "--execute", *named])
    assert found.exit_code == 1
    assert "no replica to move to its log directory within 1 s: a-0-1" in found.stderr
    expected = "Still waiting after 0 s for nodes to know the replicas that are to move to other log directories: a-0-1"
    assert expected in lines()
