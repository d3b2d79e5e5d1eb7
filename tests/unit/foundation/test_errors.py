import pickle

import kafka.errors
import pytest

from tidelog import KafkaError, KafkaException
from tidelog_foundation.errors import (
    ConfigError,
    CorruptRecordError,
    ErrorCode,
    RefreshMetadataError,
    RetriableError,
    TidelogError,
    error_for,
)

NEWER_THAN_KAFKA_PYTHON = {128, 129, 130, 131, 132, 133}
PROTOCOL_ROWS = [row for row in ErrorCode if row.code >= 0 and row.code not in NEWER_THAN_KAFKA_PYTHON]
RENAMED_SINCE = {0, 6, 10, 17, 39}
"""kafka-python keeps older names for these."""
DIFFERS_IN_JAVA = {2, 41, 75}
"""CORRUPT_MESSAGE is retriable, NOT_CONTROLLER asks for metadata and UNKNOWN_LEADER_EPOCH does not, as in Java."""


@pytest.mark.parametrize("row", PROTOCOL_ROWS, ids=lambda row: row.name)
def test_error_code_agrees_with_kafka_python_in_name_and_retriability(row: ErrorCode) -> None:
    reference = kafka.errors.kafka_errors[row.code]
    if row.code not in RENAMED_SINCE:
        assert row.name == reference.message
    if row.code not in DIFFERS_IN_JAVA:
        assert row.retriable == reference.retriable
        assert row.refresh_metadata == reference.invalid_metadata


def test_error_codes_are_distinct() -> None:
    assert len({row.code for row in ErrorCode}) == len(list(ErrorCode))


@pytest.mark.parametrize("row", list(ErrorCode), ids=lambda row: row.name)
def test_error_for_picks_the_class_that_tells_what_to_do(row: ErrorCode) -> None:
    error = error_for(row, "partition 3 of flights")
    assert isinstance(error, RetriableError) == row.retriable
    assert isinstance(error, RefreshMetadataError) == row.refresh_metadata
    assert error.code is row
    assert str(error) == f"{row.name}: partition 3 of flights"


def test_error_survives_pickling_for_spark_workers() -> None:
    error = pickle.loads(pickle.dumps(error_for(ErrorCode.OFFSET_OUT_OF_RANGE, "offset 7")))
    assert (type(error), error.code, error.message) == (TidelogError, ErrorCode.OFFSET_OUT_OF_RANGE, "offset 7")


@pytest.mark.parametrize("error", [CorruptRecordError("bad CRC"), ConfigError("no such key")])
def test_named_error_survives_pickling(error: TidelogError) -> None:
    copy = pickle.loads(pickle.dumps(error))
    assert (type(copy), copy.code, copy.message) == (type(error), error.code, error.message)


def test_unknown_code_is_unknown_server_error() -> None:
    assert ErrorCode.of(31_999) is ErrorCode.UNKNOWN_SERVER_ERROR


def test_kafka_error_has_the_shape_of_confluents() -> None:
    error = KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART, "topic nope")
    assert error == KafkaError.UNKNOWN_TOPIC_OR_PART == 3
    assert error.name() == "UNKNOWN_TOPIC_OR_PARTITION"
    assert error.str() == "topic nope"
    assert error.retriable()
    assert not error.fatal()
    assert KafkaException(error).args[0] is error
