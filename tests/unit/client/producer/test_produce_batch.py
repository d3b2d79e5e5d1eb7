"""produce_batch(): many records by one call, where they belong, with the offset of each."""

from __future__ import annotations

import datetime
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import numpy
import pandas
import pyarrow
import pytest

from tidelog import KafkaException, Producer
from tidelog.producer import BatchDeliveryError, WrittenRows
from tidelog.producer.core.hashes import murmur2_positive
from tidelog.testing import FakeCluster
from tidelog_foundation.errors import ErrorCode

VALUES = [b"value %d" % n for n in range(200)]
KEYS = [None if n % 5 == 0 else b"key %d" % (n % 13) for n in range(200)]


@pytest.fixture(scope="module")
def cluster() -> Iterator[FakeCluster]:
    with FakeCluster() as running:
        yield running


@pytest.fixture
def topic(cluster: FakeCluster, request: pytest.FixtureRequest) -> str:
    name = "".join(letter if letter.isalnum() else "." for letter in str(request.node.name))
    cluster.create_topic(name, 3)
    return name


@pytest.fixture(scope="module")
def refused(cluster: FakeCluster) -> str:
    cluster.create_topic("refused", 3)
    return "refused"


def make(cluster: FakeCluster, **config: Any) -> Producer:
    settings = {key.replace("_", "."): value for key, value in config.items()}
    return Producer({"bootstrap.servers": cluster.bootstrap_servers, "retry.backoff.ms": 10, **settings})


def check(cluster: FakeCluster, topic: str, written: WrittenRows, values: list[Any], keys: list[Any]) -> None:
    """Each row is at its offset, and nothing else is there."""
    records = {p: {r.offset: r for r in cluster.records(topic, p)} for p in range(3)}
    for row, (partition, offset) in enumerate(zip(written.partitions, written, strict=True)):
        record = records[partition].pop(offset)
        assert (record.value, record.key) == (values[row], keys[row])
    assert not any(records.values())
    for partition in range(3):
        for keyed in (True, False):
            rows = zip(written.partitions, written, keys, strict=True)
            offsets = [o for p, o, key in rows if p == partition and (key is not None) is keyed]
            assert offsets == sorted(offsets)


TEXTS = [value.decode() for value in VALUES]


def polars() -> Any:
    return pytest.importorskip("polars")


class Foreign:
    """Another library's array or batch."""

    def __init__(self, held: Any) -> None:
        self._held = held

    def __arrow_c_array__(self, requested_schema: Any = None) -> Any:
        return self._held.__arrow_c_array__(requested_schema)


FORMS = {
    "lists": lambda: (VALUES, KEYS),
    "arrays": lambda: (pyarrow.array(VALUES), pyarrow.array(KEYS)),
    "strings": lambda: (pyarrow.array([v.decode() for v in VALUES]), pyarrow.array([k and k.decode() for k in KEYS])),
    "chunked": lambda: (pyarrow.chunked_array([VALUES[:50], VALUES[50:]]), KEYS),
    "texts": lambda: ([v.decode() for v in VALUES], [k and k.decode() for k in KEYS]),
    "pandas frame": lambda: (pandas.DataFrame({"value": TEXTS, "key": KEYS}, index=range(7, 207)), None),
    "pandas series": lambda: (pandas.Series(VALUES), pandas.Series(KEYS, dtype="category")),
    "pandas text": lambda: (pandas.Series(TEXTS, dtype="string"), pandas.Series(KEYS)),
    "arrays of others": lambda: (Foreign(pyarrow.array(VALUES)), Foreign(pyarrow.array(KEYS))),
    "batch of others": lambda: (Foreign(pyarrow.record_batch({"value": VALUES, "key": KEYS})), None),
    "polars frame": lambda: (polars().DataFrame({"value": VALUES, "key": KEYS}), None),
    "polars text": lambda: (polars().DataFrame({"value": TEXTS, "key": KEYS}), None),
    "polars series": lambda: (polars().Series(TEXTS), polars().Series(KEYS)),
    "polars categories": lambda: (TEXTS, polars().Series([k and k.decode() for k in KEYS], dtype=polars().Categorical)),
    "dictionary": lambda: (VALUES, pyarrow.array(KEYS).dictionary_encode()),
    "table": lambda: (pyarrow.table({"value": VALUES, "key": KEYS}), None),
    "batch": lambda: (pyarrow.record_batch({"key": pyarrow.array(KEYS), "value": pyarrow.array(VALUES)}), None),
    "chunks": lambda: (
        pyarrow.concat_tables(
            [pyarrow.table({"value": VALUES[a:b], "key": KEYS[a:b]}) for a, b in ((0, 7), (7, 120), (120, 200))]
        ),
        None,
    ),
}


@pytest.mark.parametrize("form", FORMS)
def test_produce_batch_puts_rows_where_produce_puts_their_keys(cluster: FakeCluster, topic: str, form: str) -> None:
    data, keys = FORMS[form]()
    with make(cluster, batch_size=400) as producer:
        written = producer.produce_batch(topic, data, keys)
        assert len(producer) == 0
    check(cluster, topic, written, VALUES, KEYS)
    for row, key in enumerate(KEYS):
        if key is not None:
            assert written.partitions[row] == murmur2_positive(key) % 3
    assert len({p for p, key in zip(written.partitions, KEYS, strict=True) if key is None}) > 1


def test_written_rows_are_a_sequence_and_buffers(cluster: FakeCluster, topic: str) -> None:
    with make(cluster) as producer:
        written = producer.produce_batch(topic, VALUES[:4], partition=2)
    assert written == [0, 1, 2, 3]
    assert (len(written), written[-1], list(written[1:3])) == (4, 3, [1, 2])
    assert numpy.asarray(written.offsets).tolist() == [0, 1, 2, 3]
    assert numpy.asarray(written.partitions).tolist() == [2, 2, 2, 2]
    assert written.to_arrow().to_pydict() == {"partition": [2, 2, 2, 2], "offset": [0, 1, 2, 3]}
    assert repr(written) == "WrittenRows(4 rows: [0, 1, 2, 3])"


def test_rows_stand_behind_what_was_produced_before_them_and_before_what_came_after(
    cluster: FakeCluster, topic: str
) -> None:
    served = []
    with make(cluster, linger_ms=60_000) as producer:
        producer.produce(
            topic, b"before", partition=1, on_delivery=lambda error, message: served.append(message.offset())
        )
        written = producer.produce_batch(topic, VALUES, partition=1)
        producer.produce(topic, b"after", partition=1)
    assert [record.value for record in cluster.records(topic, 1)] == [b"before", *VALUES, b"after"]
    assert written == list(range(1, 201))
    assert served == [0]


def test_produce_batch_feeds_more_than_the_queue_holds(cluster: FakeCluster, topic: str) -> None:
    with make(cluster, queue_buffering_max_messages=30, buffer_memory=2_000, batch_size=300) as producer:
        for form in ("lists", "table"):
            written = producer.produce_batch(topic, *FORMS[form]())
            assert len(set(zip(written.partitions, written, strict=True))) == 200
    assert sum(len(cluster.records(topic, partition)) for partition in range(3)) == 400


def test_columns_give_partition_timestamp_and_headers(cluster: FakeCluster, topic: str) -> None:
    moment = datetime.datetime(2024, 5, 1, tzinfo=datetime.UTC)
    kind = pyarrow.list_(pyarrow.struct([("key", pyarrow.string()), ("value", pyarrow.binary())]))
    table = pyarrow.table(
        {
            "value": [b"a", None, b"c"],
            "partition": pyarrow.array([2, None, 0], pyarrow.int16()),
            "timestamp": pyarrow.array([moment, None, moment], pyarrow.timestamp("us", "UTC")),
            "headers": pyarrow.array([[("h", b"1"), ("h", None)], None, []], kind),
        }
    )
    with make(cluster) as producer:
        written = producer.produce_batch(topic, table)
        producer.produce_batch(topic, [b"d", b"e"], None, [1, 1], [5, 6], [None, [("x", b"y")]])
        producer.produce_batch(topic, [b"f"], partition=1, timestamp=77)
    assert (written.partitions[0], written.partitions[2]) == (2, 0)
    [record] = [r for r in cluster.records(topic, 2) if r.value == b"a"]
    assert (record.timestamp_ms, record.headers) == (int(moment.timestamp() * 1000), (("h", b"1"), ("h", None)))
    found = [(r.value, r.timestamp_ms, r.headers) for r in cluster.records(topic, 1) if r.value is not None]
    assert found == [(b"d", 5, ()), (b"e", 6, (("x", b"y"),)), (b"f", 77, ())]


@pytest.mark.parametrize(
    ("arguments", "error", "text"),
    [
        (({"value": [b"a"]},), TypeError, "data must be"),
        (([{"value": b"a"}],), TypeError, "dicts are for produce"),
        ((b"abc",), TypeError, "data must be"),
        (([b"a", "b"],), TypeError, "value 1: expected bytes or None, got str"),
        (([None, "b", 5],), TypeError, "value 2: expected bytes or None, got int"),
        ((["a", "\ud800"],), ValueError, "value 1 cannot be encoded as UTF-8"),
        (([b"a"], [b"k", b"l"]), ValueError, "2 keys for 1 values"),
        (([b"a"], None, [0, 1]), ValueError, "2 partitions for 1 values"),
        (([b"a"], None, -1, [1, 2]), ValueError, "2 timestamps for 1 values"),
        (([b"a"], None, -1, None, []), ValueError, "0 headers for 1 values"),
        (([b"a"], None, -1, None, [[("h", 5)]]), TypeError, "a header must be"),
        ((pyarrow.table({"val": [b"a"]}),), TypeError, 'unknown column "val": a table of'),
        ((pyarrow.table({"a": [1], "value": [b"a"], "b": [2]}),), TypeError, 'unknown columns "a", "b": a table of'),
        ((pandas.DataFrame({"value": ["a"], "when": [1]}),), TypeError, 'unknown column "when": a table of'),
        ((pandas.DataFrame({"value": ["a", b"a", 1]}),), TypeError, "Arrow cannot take together"),
        ((pandas.Series([1, 2]),), TypeError, "expected an Arrow array of binary or string, got int64"),
        ((pyarrow.table({"key": [b"a"]}),), TypeError, 'has no column "value"'),
        ((pyarrow.table({"value": [b"a"], "key": [b"a"]}), [b"k"]), TypeError, '"key" is given twice'),
        ((pyarrow.table({"value": [b"a"]}), [b"k"]), TypeError, '"key" must be a column of the table'),
        ((pyarrow.array([1.5]),), TypeError, "expected an Arrow array of binary or string, got double"),
        (([b"a"], None, 3), KafkaException, "has no partition 3, it has 3"),
        (([b"a"], None, [7]), KafkaException, "has no partition 7, it has 3"),
        (([b"a"], None, -2), KafkaException, "partition -2 is not valid"),
        (([b"a", b"x" * 2_000],), KafkaException, r"row 1 has 2000 bytes.*message\.max\.bytes=1000"),
    ],
)
def test_produce_batch_refuses_what_it_cannot_send_before_it_sends_anything(
    cluster: FakeCluster, refused: str, arguments: Any, error: type[Exception], text: str
) -> None:
    with make(cluster, message_max_bytes=1_000) as producer, pytest.raises(error, match=text):
        producer.produce_batch(refused, *arguments)
    assert [cluster.end_offset(refused, partition) for partition in range(3)] == [0, 0, 0]


def test_rows_that_fail_are_named(cluster: FakeCluster, topic: str) -> None:
    with make(cluster, batch_size=300) as producer:
        producer.produce_batch(topic, [b"first"], partition=0)
        cluster.fail_next("Produce", ErrorCode.INVALID_RECORD)
        with pytest.raises(BatchDeliveryError, match=r"rows were not delivered") as caught:
            producer.produce_batch(topic, VALUES[:40], partition=0)
    rows, failed = caught.value.rows, caught.value.failed
    assert caught.value.code is ErrorCode.INVALID_RECORD
    assert failed == list(rows).count(-1) > 0
    assert [value for value, offset in zip(VALUES, rows, strict=False) if offset >= 0] == [
        record.value for record in cluster.records(topic, 0)[1:]
    ]


def test_produce_batch_of_a_topic_that_is_not_there_says_so(cluster: FakeCluster) -> None:
    with (
        make(cluster, topic_metadata_propagation_max_ms=50, allow_auto_create_topics=False) as producer,
        pytest.raises(KafkaException, match="there is no topic 'nowhere'") as caught,
    ):
        producer.produce_batch("nowhere", [b"a"])
    assert caught.value.code is ErrorCode._UNKNOWN_TOPIC


def test_produce_batch_of_nothing_and_of_a_closed_producer(cluster: FakeCluster, topic: str) -> None:
    with make(cluster) as producer:
        assert producer.produce_batch(topic, []) == []
        assert producer.produce_batch(topic, pyarrow.table({"value": pyarrow.array([], pyarrow.binary())})) == []
    with pytest.raises(KafkaException, match="closed"):
        producer.produce_batch(topic, [b"a"])


@pytest.mark.parametrize(
    "partitioner", ["roundrobin", "consistent", lambda topic, key, count: (key or b"x")[-1] % count]
)
def test_produce_batch_asks_the_partitioner(cluster: FakeCluster, topic: str, partitioner: Any) -> None:
    with make(cluster, partitioner=partitioner, compression_type="zstd") as producer:
        written = producer.produce_batch(topic, VALUES, KEYS)
    check(cluster, topic, written, VALUES, KEYS)
    if partitioner == "roundrobin":
        assert [list(written.partitions).count(partition) for partition in range(3)] in (
            [67, 67, 66],
            [66, 67, 67],
            [67, 66, 67],
        )
    elif callable(partitioner):
        assert list(written.partitions) == [partitioner("", key, 3) for key in KEYS]


def test_produce_batch_without_acknowledgements_knows_no_offsets(cluster: FakeCluster, topic: str) -> None:
    with make(cluster, acks="0") as producer:
        assert producer.produce_batch(topic, VALUES[:3], partition=0) == [-1, -1, -1]


@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_frames_give_partition_and_timestamp(cluster: FakeCluster, topic: str, library: str) -> None:
    moment = datetime.datetime(2024, 5, 1, tzinfo=datetime.UTC)
    columns = {"value": ["a", "b"], "partition": [2, None], "timestamp": [moment, None]}
    with make(cluster) as producer:
        written = producer.produce_batch(topic, pytest.importorskip(library).DataFrame(columns))
        producer.produce_batch(
            topic,
            pandas.Series(["c", "d"]),
            partition=pandas.Series([1, 1]),
            timestamp=pandas.Series([5, 6]),
            headers=pandas.Series([None, [("x", b"y")]]),
        )
    assert written.partitions[0] == 2
    [record] = [r for r in cluster.records(topic, 2) if r.value == b"a"]
    assert record.timestamp_ms == int(moment.timestamp() * 1000)
    found = [(r.value, r.timestamp_ms, r.headers) for r in cluster.records(topic, 1) if r.value in (b"c", b"d")]
    assert found == [(b"c", 5, ()), (b"d", 6, (("x", b"y"),))]


def test_frame_of_polars_that_is_not_computed_is_refused(cluster: FakeCluster, refused: str) -> None:
    with make(cluster) as producer, pytest.raises(TypeError, match=r"pass the result of collect\(\)"):
        producer.produce_batch(refused, polars().LazyFrame({"value": ["a"]}))
    assert cluster.end_offset(refused, 0) == 0


@pytest.mark.costly
def test_lists_need_neither_pandas_nor_polars_nor_pyarrow() -> None:
    code = (
        "import sys; from tidelog.producer.columns import read_columns; read_columns(['a'], None, -1, None, None);"
        "print([m for m in ('pandas', 'polars', 'pyarrow') if m in sys.modules])"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert found.stdout.strip() == "[]"
