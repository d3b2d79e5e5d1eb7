"""The sink's protocol on a node: rows become visible with their whole batch, once, after a crash at any command."""

from __future__ import annotations

import zlib
from collections.abc import Iterator

import pytest
from sink_runner import (
    PARTITIONS,
    SINK,
    Crash,
    Runner,
    crash_and_recover,
    expected,
    open_ids,
    plan_of,
    values_of,
    visible,
)

from tidelog import AdminClient, Producer
from tidelog.testing import FakeCluster
from tidelog_foundation.errors import ConfigError, TidelogError
from tidelog_spark.sink.execution import Execution, task_id
from tidelog_spark.sink.journal_topic import JOURNAL_TOPIC, JournalTopic
from tidelog_spark.sink.protocol import (
    Attempt,
    Command,
    Complete,
    Completion,
    abandon_sink,
    abort_batch,
    commit_batch,
    write_task,
)


@pytest.fixture
def fake() -> Iterator[FakeCluster]:
    with FakeCluster() as cluster:
        cluster.create_topic("t", partitions=PARTITIONS)
        yield cluster


@pytest.mark.parametrize("commands", [13])
def test_batch_is_committed_once_after_a_crash(fake: FakeCluster, commands: int) -> None:
    assert crash_and_recover(fake, commands, is_after=True)


def test_repeated_attempt_leaves_the_transaction_of_another_alone(fake: FakeCluster) -> None:
    runner, attempt = Runner(fake), Attempt(SINK, "run", 0)
    first = runner.write(attempt, 0)
    again = runner.write(attempt, 0)
    assert first is not None
    assert again is not None
    assert again.transactional_id == f"{first.transactional_id}.1"
    runner.finish(attempt, commit_batch(attempt, (first,)))
    assert visible(fake) == values_of(0, 0)
    assert open_ids(fake) == []


class Abandoned(Execution):
    """Leaves everything as a killed process does."""

    def _close(self) -> None:
        pass


def test_attempt_that_began_before_the_commit_leaves_no_transaction_open_after_it(fake: FakeCluster) -> None:
    runner, attempt = Runner(fake), Attempt(SINK, "run", 0)
    first = runner.write(attempt, 0)
    assert first is not None

    def commit_and_write(producer: Producer) -> None:
        runner.finish(attempt, commit_batch(attempt, (first,)))
        producer.produce("t", "late")
        producer.flush()
        raise Crash("a task that lost against a copy of it is killed")

    slow = Abandoned(plan_of(fake), SINK, is_single=False, write=commit_and_write)
    with pytest.raises(Crash):
        slow.run(write_task(attempt, task_id(SINK, 0, 1)))
    assert open_ids(fake) == []
    assert visible(fake) == values_of(0, 0)


def test_aborted_batch_is_invisible_and_its_run_is_over(fake: FakeCluster) -> None:
    runner, attempt = Runner(fake), Attempt(SINK, "run", 0)
    prepared = runner.write(attempt, 0)
    assert prepared is not None
    runner.finish(attempt, abort_batch(attempt))
    assert open_ids(fake) == []
    with pytest.raises(TidelogError, match=r"run run can no longer write batch 0 of sink query"):
        runner.write(attempt, 1)
    with pytest.raises(TidelogError, match=r"the sink belongs to no run"):
        runner.finish(attempt, commit_batch(attempt, (prepared,)))
    assert visible(fake) == []


def test_commit_of_a_run_that_was_replaced_fails(fake: FakeCluster) -> None:
    runner, old, new = Runner(fake), Attempt(SINK, "old", 0), Attempt(SINK, "new", 0)
    prepared = runner.write(old, 0)
    assert prepared is not None
    runner.run("new", 0)
    runner.finish(new, commit_batch(new, ()))
    with pytest.raises(TidelogError, match=r"run old can no longer write batch 0"):
        runner.finish(old, commit_batch(old, (prepared,)))
    assert visible(fake) == expected(0)


def terminate(fake: FakeCluster, transactional_id: str) -> None:
    with AdminClient(fake.client_settings()) as admin:
        admin.force_terminate_transaction(transactional_id).result()


def test_batch_whose_prepared_transaction_was_ended_by_an_administrator_is_an_error(fake: FakeCluster) -> None:
    runner, attempt = Runner(fake), Attempt(SINK, "run", 0)
    first, second = runner.write_all(attempt)
    terminate(fake, first.transactional_id)
    with pytest.raises(
        TidelogError, match=rf"batch 0 of sink query is not whole: 1 of its .*: {first.transactional_id}$"
    ):
        runner.finish(attempt, commit_batch(attempt, (first, second)))
    assert visible(fake) == values_of(0, 1)
    completion = runner.run("next", 0)
    assert first.transactional_id in completion.ended
    assert visible(fake) == values_of(0, 1)
    assert open_ids(fake) == []


def test_repeated_batch_that_is_whole_names_no_ended_transaction(fake: FakeCluster) -> None:
    assert Runner(fake).run("first", 0) == Completion(committed=PARTITIONS)
    assert Runner(fake).run("second", 0) == Completion()
    assert Runner(fake).run("third", 0) == Completion()


def crash_at(fake: FakeCluster, attempt: Attempt, command: type[Command]) -> None:
    """Write and commit a batch, and crash before a command of the commit."""
    steps = commit_batch(attempt, Runner(fake).write_all(attempt))
    execution = Execution(plan_of(fake), SINK, is_single=False)
    given = next(steps)
    while not isinstance(given, command):
        given = steps.send(execution.execute(given))


def test_abandoned_sink_completes_the_committed_batch_and_fences_its_driver(fake: FakeCluster) -> None:
    runner, attempt = Runner(fake), Attempt(SINK, "lost", 0)
    crash_at(fake, attempt, Complete)
    assert len(open_ids(fake)) == PARTITIONS
    assert runner.finish(attempt, abandon_sink(SINK, "operator")) == Completion(committed=PARTITIONS)
    assert visible(fake) == expected(0)
    with pytest.raises(TidelogError, match=r"run lost can no longer write batch 1"):
        runner.run("lost", 1)
    runner.run("new", 1)
    assert visible(fake) == expected(0, 1)


def test_abandoned_sink_aborts_the_batch_that_is_not_committed(fake: FakeCluster) -> None:
    runner, attempt = Runner(fake), Attempt(SINK, "lost", 1)
    runner.run("lost", 0)
    prepared = runner.write_all(attempt)
    assert runner.finish(attempt, abandon_sink(SINK, "operator")) == Completion(aborted=PARTITIONS)
    assert open_ids(fake) == []
    with pytest.raises(TidelogError, match=r"run lost can no longer write batch 1"):
        runner.finish(attempt, commit_batch(attempt, prepared))
    assert runner.finish(attempt, abandon_sink(SINK, "operator")) == Completion()
    runner.run("new", 1)
    assert visible(fake) == expected(0, 1)


def test_batch_that_an_application_does_not_repeat_is_complete_before_its_next(fake: FakeCluster) -> None:
    crash_at(fake, Attempt(SINK, "first", 0, is_in_order=False), Complete)
    Runner(fake).run("second", 5, is_in_order=False)
    assert visible(fake) == expected(0, 5)
    assert open_ids(fake) == []
    Runner(fake).run("third", 4, is_in_order=False)
    assert visible(fake) == expected(0, 5)


def test_sink_leaves_transactions_of_a_sink_with_a_similar_name_alone(fake: FakeCluster) -> None:
    runner = Runner(fake)
    with Producer({**fake.client_settings(), "transactional.id": task_id(f"{SINK}-1", 0, 0)}) as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.produce("t", "other")
        producer.flush()
        runner.run("run", 0)
        assert open_ids(fake) == [task_id(f"{SINK}-1", 0, 0)]
        producer.abort_transaction()


def test_cluster_without_two_phase_commits_is_told_before_any_row() -> None:
    with FakeCluster(node_config={"transaction.two.phase.commit.enable": "false"}) as fake:
        fake.create_topic("t")
        with pytest.raises(ConfigError, match=r'set the option sink.semantics to "at-least-once"'):
            Runner(fake).write(Attempt(SINK, "run", 0), 0)
        assert fake.end_offset("t") == 0


def test_journal_is_read_to_its_end_when_that_takes_several_fetches(fake: FakeCluster) -> None:
    plan = plan_of(fake)
    written = JournalTopic(plan, SINK)
    state = written.read().claimed("first")
    written.append(state)
    # The topic's segments have a mebibyte, and a fetch reads one segment.
    filler = Producer(fake.client_settings())
    for _ in range(3):
        filler.produce(JOURNAL_TOPIC, b"x" * 600_000, b"other/marker", partition=zlib.crc32(SINK.encode()) % 16)
    filler.flush()
    last = written.read().claimed("second")
    written.append(last)

    assert written.read() == last
    assert JournalTopic(plan, SINK).read() == last
