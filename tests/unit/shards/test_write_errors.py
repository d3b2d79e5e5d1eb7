"""The errors of writes to a coordinator's partition, as clients get them."""

from __future__ import annotations

import pytest

from tidelog_foundation.errors import ErrorCode, error_for
from tidelog_node.groups.answers import write_error
from tidelog_node.shards.write_errors import coordinator_error


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_COORDINATOR),
        (ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.NOT_COORDINATOR),
        (ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.NOT_COORDINATOR),
        (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.REQUEST_TIMED_OUT, ErrorCode.COORDINATOR_NOT_AVAILABLE),
    ],
)
def test_write_that_the_partition_refuses_sends_clients_to_the_coordinator(
    code: ErrorCode, expected: ErrorCode
) -> None:
    refused = error_for(code, "t-0 is elsewhere")
    found = coordinator_error(refused)
    assert found is not None
    assert (found.code, found.message) == (expected, "t-0 is elsewhere")
    assert write_error(refused).code is expected


def test_other_errors_of_writes_are_the_callers() -> None:
    refused = error_for(ErrorCode.INVALID_PRODUCER_EPOCH, "stale")
    assert coordinator_error(refused) is None
    assert write_error(refused) is refused
    assert write_error(error_for(ErrorCode.MESSAGE_TOO_LARGE, "2 MiB")).code is ErrorCode.UNKNOWN_SERVER_ERROR
