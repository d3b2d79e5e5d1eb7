"""Batches of a sink on a FakeCluster, as Spark runs them, with a crash before or after a command."""

from __future__ import annotations

import pyarrow as pa

from tidelog import AdminClient, Producer
from tidelog.admin import TransactionState
from tidelog.testing import FakeCluster, LocalCluster
from tidelog_spark.sink.execution import Execution, task_id
from tidelog_spark.sink.journal import Prepared
from tidelog_spark.sink.options import SinkPlan, sink_plan
from tidelog_spark.sink.protocol import Attempt, Command, Completion, Result, Steps, commit_batch, write_task
from tidelog_spark.sink.rows import produce_rows

SINK = "query"
PARTITIONS = 2


class Crash(Exception):
    """The end of the process."""


class Crashing(Execution):
    """Executes a number of commands of a whole batch, and crashes before or after the next."""

    left = 0
    is_after = False

    def execute(self, command: Command) -> Result:
        cls = type(self)
        cls.left -= 1
        if cls.left == 0 and not cls.is_after:
            raise Crash(command)
        result = super().execute(command)
        if cls.left == 0:
            raise Crash(command)
        return result

    def _close(self) -> None:
        """Leave everything as a killed process does."""


def plan_of(cluster: FakeCluster | LocalCluster, **options: str) -> SinkPlan:
    return sink_plan({"bootstrap.servers": cluster.bootstrap_servers, "topic": "t", **options})


def values_of(batch: int, partition: int) -> list[bytes]:
    return [f"{batch}-{partition}-{row}".encode() for row in range(3)]


class Runner:
    """Runs batches as Spark does, with one task per partition."""

    def __init__(
        self, cluster: FakeCluster | LocalCluster, execution: type[Execution] = Execution, **options: str
    ) -> None:
        self.plan, self.execution = plan_of(cluster, **options), execution

    def run(self, run: str, batch: int, *, is_in_order: bool = True) -> Completion:
        attempt = Attempt(SINK, run, batch, is_in_order)
        return self.finish(attempt, commit_batch(attempt, self.write_all(attempt)))

    def write_all(self, attempt: Attempt) -> tuple[Prepared, ...]:
        found = (self.write(attempt, partition) for partition in range(PARTITIONS))
        return tuple(each for each in found if each is not None)

    def write(self, attempt: Attempt, partition: int, number: int = 0) -> Prepared | None:
        rows = pa.table({"value": values_of(attempt.batch, partition)})

        def write(producer: Producer) -> None:
            produce_rows(producer, "t", rows)

        execution = self.execution(self.plan, SINK, is_single=False, write=write)
        return execution.run(write_task(attempt, task_id(SINK, partition, number)))

    def finish(self, attempt: Attempt, steps: Steps[Completion]) -> Completion:
        return self.execution(self.plan, SINK, is_single=False).run(steps)


def visible(cluster: FakeCluster) -> list[bytes]:
    found = (cluster.records("t", partition, read_committed=True) for partition in range(PARTITIONS))
    return sorted(bytes(record.value or b"") for records in found for record in records)


def expected(*batches: int) -> list[bytes]:
    return sorted(value for batch in batches for p in range(PARTITIONS) for value in values_of(batch, p))


def open_ids(cluster: FakeCluster | LocalCluster) -> list[str]:
    with AdminClient(cluster.client_settings()) as admin:
        found = admin.list_transactions(states=[TransactionState.ONGOING]).result()
    return [each.transactional_id for each in found.valid]


def crash_and_recover(fake: FakeCluster, commands: int, *, is_after: bool) -> bool:
    """Crash at a command of batch 1 and repeat the batch. Return False if the batch has fewer commands."""
    Runner(fake).run("first", 0)
    Crashing.left, Crashing.is_after = commands, is_after
    crashed = False
    try:
        Runner(fake, Crashing).run("first", 1)
    except Crash:
        crashed = True
    assert visible(fake) in (expected(0), expected(0, 1)) or Crashing.left == 0
    Runner(fake).run("second", 1)
    assert visible(fake) == expected(0, 1), (commands, is_after)
    Runner(fake).run("second", 2)
    assert visible(fake) == expected(0, 1, 2), (commands, is_after)
    assert open_ids(fake) == []
    return crashed
