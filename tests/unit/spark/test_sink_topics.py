"""Topics of the sink that do not exist, or are deleted while rows are written: an error that names them, at once."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator

import pyarrow as pa
import pytest
from pyspark.sql.types import BinaryType, StructField, StructType
from sink_runner import SINK, Runner, open_ids

from tidelog import AdminClient, Producer
from tidelog.testing import FakeCluster
from tidelog_foundation.errors import TidelogError
from tidelog_spark.sink.execution import Execution, task_id
from tidelog_spark.sink.options import SinkPlan, sink_plan
from tidelog_spark.sink.protocol import Attempt, write_task
from tidelog_spark.sink.rows import produce_rows
from tidelog_spark.sink.writer import SinkMessage, TidelogStreamWriter

VALUES = StructType([StructField("value", BinaryType())])
SOON_S = 20
"""Far less than message.timeout.ms, on a busy machine too."""


@pytest.fixture
def fake() -> Iterator[FakeCluster]:
    with FakeCluster() as cluster:
        cluster.create_topic("t")
        yield cluster


def plan_of(fake: FakeCluster, **options: str) -> SinkPlan:
    return sink_plan({"bootstrap.servers": fake.bootstrap_servers, "kafka.max.block.ms": "300", **options})


def delete(fake: FakeCluster, topic: str) -> None:
    with AdminClient(fake.client_settings()) as admin:
        admin.delete_topics([topic])[topic].result()


def write_to_missing(fake: FakeCluster, producer: Producer) -> None:
    produce_rows(producer, None, pa.table({"value": [b"1", b"2"], "topic": ["t", "missing"]}))


def write_while_deleted(fake: FakeCluster, producer: Producer) -> None:
    rows = pa.table({"value": [b"1"]})
    produce_rows(producer, "t", rows)
    delete(fake, "t")
    produce_rows(producer, "t", rows)


@pytest.mark.parametrize("is_exactly_once", [True, False])
@pytest.mark.parametrize(("write", "topic"), [(write_to_missing, "missing"), (write_while_deleted, "t")])
def test_task_whose_topic_is_missing_fails_soon_and_names_it(
    fake: FakeCluster, write: Callable[[FakeCluster, Producer], None], topic: str, is_exactly_once: bool
) -> None:
    plan = plan_of(fake)

    def run() -> None:
        if is_exactly_once:
            execution = Execution(plan, SINK, is_single=False, write=lambda producer: write(fake, producer))
            execution.run(write_task(Attempt(SINK, "run", 0), task_id(SINK, 0, 0)))
        else:
            with Producer(plan.producer) as producer:
                write(fake, producer)

    begun_s = time.monotonic()
    with pytest.raises(TidelogError, match=rf"_UNKNOWN_TOPIC: .*there is no topic '{topic}'"):
        run()
    assert time.monotonic() - begun_s < SOON_S
    assert open_ids(fake) == []


@pytest.mark.parametrize("is_committed", [True, False])
def test_transactions_of_a_batch_end_though_the_topic_was_deleted_before_its_commit(
    fake: FakeCluster, is_committed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    attempt = Attempt(SINK, "run", 0)
    messages = [SinkMessage(attempt, prepared) for prepared in Runner(fake).write_all(attempt)]
    assert len(open_ids(fake)) == len(messages)
    delete(fake, "t")
    plan = plan_of(fake, topic="t")
    with pytest.raises(TidelogError, match='there is no topic "t"'):
        TidelogStreamWriter(plan, VALUES, overwrite=False)
    # As in the process that Spark starts after the tasks.
    monkeypatch.setitem(sys.modules, "pyspark.sql.worker.python_streaming_sink_runner", sys)
    writer = TidelogStreamWriter(plan, VALUES, overwrite=False)
    (writer.commit if is_committed else writer.abort)([*messages], 0)
    assert open_ids(fake) == []
