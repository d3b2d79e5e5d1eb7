"""A record that takes the short way comes to the same as one that takes the long way: both twins, any records."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from example_counts import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from tidelog.producer.core import _pure_intake, appender, splitting
from tidelog.producer.core.accumulator import Accumulator
from tidelog.producer.core.engine import COMPILED
from tidelog.producer.core.events import Send, Settle, TopicLearned
from tidelog.producer.core.limits import AccumulatorLimits
from tidelog_foundation.errors import KafkaException
from tidelog_foundation.records import read_records

LIMITS = AccumulatorLimits(
    linger_ms=5,
    batch_size=600,
    batch_num_messages=4,
    max_messages=60,
    max_bytes=8_000,
    message_max_bytes=1_000,
    message_timeout_ms=1_000,
    propagation_max_ms=300,
    retries=1_000,
)

RECORDS = st.tuples(
    st.sampled_from([-1, -1, -1, 0, 1, 2, 7]),
    st.none() | st.binary(max_size=8),
    st.none() | st.binary(max_size=12).map(lambda part: part * 30),
    st.sampled_from([(), (), (("h", b"v"), ("h", None))]),
    st.integers(0, 2**40),
    st.booleans(),
)


@pytest.fixture(params=["_pure_intake", "_fast_intake"], ids=["pure", "compiled"], scope="module")
def engine(request: pytest.FixtureRequest) -> Iterator[None]:
    try:
        chosen: Any = importlib.import_module(f"tidelog.producer.core.{request.param}")
    except ImportError as error:
        pytest.skip(f"the compiled engine is not built: {error}")
    if request.param == "_fast_intake" and not COMPILED:
        pytest.skip("the pure engine is selected")
    with pytest.MonkeyPatch.context() as patch:
        for module in (appender, splitting):
            patch.setattr(module, "BatchContents", chosen.BatchContents)
        patch.setattr(appender, "Intake", chosen.Intake)
        yield


class Deaf:
    """Records whose reports only the test reads."""

    def __call__(self, error: object, message: object) -> None: ...


def run(records: list[Any], limits: AccumulatorLimits, is_short: bool) -> Any:
    accumulator = Accumulator(limits, lambda attempt: 10.0, lambda n: n // 2)
    accumulator.handle(TopicLearned("t", 3, range(3)), 0)
    if not is_short:
        accumulator._appender.intake = _Refusing(accumulator.intake)  # type: ignore[assignment]
    report = Deaf()
    outcomes: list[Any] = []
    for index, (partition, key, value, headers, timestamp_ms, has_report) in enumerate(records):
        try:
            is_due = accumulator.append(
                "t", partition, key, value, headers, timestamp_ms, report if has_report else None, index
            )
            outcomes.append(is_due)
        except (KafkaException, BufferError) as error:
            outcomes.append(str(error))
        accumulator.check_invariants()
    counts = (accumulator.count, accumulator.payload_bytes, accumulator.unserved)
    accumulator.flushing = 1
    batches = [b for c in accumulator.poll(2_00, lambda t, p: 1) if isinstance(c, Send) for b in c.batches]
    return (
        outcomes,
        counts,
        [(b.partition, read_records(b.encode()), [_delivery(d) for d in b.deliveries]) for b in batches],
    )


def _delivery(delivery: Any) -> tuple[Any, ...]:
    return (
        delivery.relative_offset,
        delivery.key,
        delivery.value,
        tuple(delivery.headers),
        delivery.timestamp_ms,
        delivery.produced_ms,
    )


class _Refusing:
    """An intake that takes nothing by the short way."""

    def __init__(self, intake: Any) -> None:
        object.__setattr__(self, "_intake", intake)

    def append(self, *arguments: Any) -> bool:
        return False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._intake, name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self._intake, name, value)


@pytest.mark.parametrize("chosen", ["murmur2_random", "consistent_random", "fnv1a", "sticky", "roundrobin"])
@settings(max_examples=examples(30))
@given(records=st.lists(RECORDS, max_size=80))
def test_short_way_comes_to_the_same_as_the_long_way(engine: None, chosen: str, records: list[Any]) -> None:
    limits = replace(LIMITS, partitioner=chosen)
    assert run(records, limits, True) == run(records, limits, False)


def test_most_records_take_the_short_way(engine: None) -> None:
    accumulator = Accumulator(replace(LIMITS, batch_num_messages=100, batch_size=10_000), lambda a: 1.0, lambda n: 0)
    accumulator.handle(TopicLearned("t", 1, [0]), 0)
    taken = [accumulator.intake.append("t", -1, b"k", b"v", 1, None, 0.0)]
    accumulator.append("t", -1, b"k", b"v", (), 1, None, 0.0)
    taken += [accumulator.intake.append("t", -1, b"k", b"v", 1, None, 0.0) for _ in range(20)]
    assert taken == [False] + [True] * 20


def test_what_is_not_ordinary_does_not_take_the_short_way(engine: None) -> None:
    accumulator = Accumulator(LIMITS, lambda a: 1.0, lambda n: 0)
    accumulator.handle(TopicLearned("t", 2, [0, 1]), 0)
    accumulator.append("t", 0, None, b"v", (), 1, None, 0.0)
    append = accumulator.intake.append
    assert not append("other", 0, None, b"v", 1, None, 0.0)
    assert not append("t", 1, None, b"v", 1, None, 0.0)
    assert not append("t", 2, None, b"v", 1, None, 0.0)
    assert not append("t", 0, None, b"v" * 2_000, 1, None, 0.0)
    assert append("t", 0, None, b"v", 1, None, 0.0)
    assert accumulator.count == 2
    accumulator.unserved = 58
    assert not append("t", 0, None, b"v", 1, None, 0.0)
    accumulator.unserved = 0
    assert sum(c.count for c in accumulator.purge(in_queue=True, in_flight=True) if isinstance(c, Settle)) == 2
    assert not append("t", 0, None, b"v", 1, None, 0.0)
    accumulator.check_invariants()


@given(
    key=st.none() | st.binary(max_size=20),
    kind=st.integers(0, 3),
    keyless=st.sampled_from([-1, 0, 7, 2**32 - 1]),
    empty_sticks=st.booleans(),
    is_plain=st.booleans(),
    count=st.integers(1, 1_000),
)
def test_lanes_of_both_twins_choose_alike(
    key: bytes | None, kind: int, keyless: int, empty_sticks: bool, is_plain: bool, count: int
) -> None:
    fast = pytest.importorskip("tidelog.producer.core._fast_intake")
    lanes = [twin.TopicLanes(kind, keyless, empty_sticks, is_plain) for twin in (_pure_intake, fast)]
    for each in lanes:
        each.widen(count)
        each.sticky = count - 1
    assert lanes[0].partition_of(key) == lanes[1].partition_of(key)
