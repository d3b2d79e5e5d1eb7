"""Message as Python and as its compiled twin: the same answers for read records and for messages of parts."""

from __future__ import annotations

import importlib
import pickle
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog import _pure_message as pure
from tidelog_foundation.records import COMPILED, Record

PARTS = (
    "topic",
    "partition",
    "offset",
    "key",
    "value",
    "deserialized_key",
    "deserialized_value",
    "headers",
    "timestamp",
    "error",
    "latency",
    "leader_epoch",
)
CONTENT = st.none() | st.binary(max_size=5)
HEADERS = st.lists(st.tuples(st.text(max_size=3), CONTENT), max_size=3)
RECORDS = st.builds(
    Record,
    offset=st.integers(0, 2**63 - 1),
    timestamp_ms=st.integers(-1, 2**62),
    timestamp_type=st.sampled_from([0, 1]),
    key=CONTENT,
    value=CONTENT,
    headers=HEADERS.map(tuple),
)
CHANGES = st.lists(
    st.tuples(st.just("set_key"), st.integers())
    | st.tuples(st.just("set_value"), CONTENT | st.text(max_size=3))
    | st.tuples(st.just("set_headers"), st.none() | HEADERS)
    | st.tuples(st.just("set_topic"), st.text(max_size=3))
    | st.tuples(st.just("set_error"), st.none() | st.just("an error")),
    max_size=3,
)


@pytest.fixture(scope="module")
def fast() -> Any:
    if not COMPILED:
        pytest.skip("the pure engine is selected")
    return pytest.importorskip("tidelog._fast_message")


def observed(message: Any) -> list[Any]:
    return [getattr(message, part)() for part in PARTS] + [len(message), bool(message), repr(message)]


@given(records=st.lists(RECORDS, max_size=3), epoch=st.integers(-1, 5), changes=CHANGES, is_seen=st.booleans())
def test_twins_tell_the_same_of_read_records_whatever_was_set(
    fast: Any, records: list[Record], epoch: int, changes: list[tuple[str, Any]], is_seen: bool
) -> None:
    told = []
    for twin in (pure, fast):
        messages = twin.messages_of(records, "t", 3, epoch)
        for message in messages:
            if is_seen:
                observed(message)
            for name, value in changes:
                getattr(message, name)(value)
        told.append([observed(message) for message in messages])
    assert told[0] == told[1]


@given(parts=st.lists(st.none() | st.integers() | st.binary(max_size=3), max_size=5))
def test_twins_tell_the_same_of_messages_that_are_made_of_parts(fast: Any, parts: list[Any]) -> None:
    [one, other] = [twin.Message(*parts, headers=[("h", b"v")], timestamp=(1, 5), latency=0.5) for twin in (pure, fast)]
    assert [getattr(one, part)() for part in PARTS] == [getattr(other, part)() for part in PARTS]


@pytest.mark.parametrize("twin", ["_pure_message", "_fast_message"])
def test_message_survives_pickle_and_its_headers_are_one_list(twin: str) -> None:
    if twin == "_fast_message" and not COMPILED:
        pytest.skip("the pure engine is selected")
    module = importlib.import_module(f"tidelog.{twin}")
    [message] = module.messages_of([Record(7, 1000, 0, b"k", b"v", (("h", None),))], "t", 3, 2)
    message.headers().append(("more", b"1"))
    again = pickle.loads(pickle.dumps(message))
    assert again.headers() == [("h", None), ("more", b"1")]
    assert observed(again) == observed(message)
