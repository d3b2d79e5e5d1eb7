"""Requests too large for a record: refused on arrival, not at the write."""

from __future__ import annotations

from group_shards import (
    ShardHarness,
    code_of,
    commit_request,
    fetched_offsets,
    join_request,
    stable_group,
    subscription,
    sync_request,
)

from tidelog_foundation.errors import ErrorCode
from tidelog_node.groups.limits import MAX_NAME_BYTES
from tidelog_node.groups.messages import DescribeGroupsRequest
from tidelog_node.groups.settings import GroupSettings
from tidelog_node.shards.events import ClientIdentity
from tidelog_node.shards.wire import MAX_STRING_BYTES

LONG = "ä" * (MAX_STRING_BYTES // 2 + 1)


def test_names_that_have_no_room_in_a_record_are_refused() -> None:
    harness = ShardHarness()
    for request in (
        join_request(group=LONG),
        join_request(instance="n" * (MAX_NAME_BYTES + 1)),
        join_request(protocol_type=LONG),
        join_request(protocols=[(LONG, b"")]),
    ):
        assert code_of(harness.call(request)) is ErrorCode.INVALID_REQUEST
    answer = harness.call(join_request(), ClientIdentity(LONG, "/127.0.0.1"))
    assert code_of(answer) is ErrorCode.INVALID_REQUEST
    assert f"client.id has {MAX_STRING_BYTES + 1} bytes, at most {MAX_NAME_BYTES}" in answer.error.message


def test_commits_that_have_no_room_in_a_record_are_refused() -> None:
    harness = ShardHarness(GroupSettings(offset_metadata_max_bytes=100_000))
    for request in (commit_request({(LONG, 0): 1}), commit_request({("t", 0): 1}, metadata=LONG)):
        assert code_of(harness.call(request).topics[0].partitions[0]) is ErrorCode.INVALID_REQUEST
    assert fetched_offsets(harness) == {}
    listed = harness.call(DescribeGroupsRequest(group_ids=("g", LONG))).groups
    assert [code_of(group) for group in listed] == [ErrorCode.INVALID_REQUEST] * 2


def test_names_as_long_as_can_be_and_large_assignments_are_written() -> None:
    harness = ShardHarness()
    longest = "n" * MAX_NAME_BYTES
    call = harness.send(join_request(instance=longest, protocols=[("range", subscription(longest[:30_000]))]))
    harness.pass_time(3_000)
    member_id = harness.responses[call].member_id
    assignment = b"a" * 100_000
    sync = sync_request(member_id, 1, {member_id: assignment}, instance=longest)
    assert harness.call(sync).assignment == assignment
    harness.reload()
    assert harness.call(sync).assignment == assignment


def test_many_short_names_are_no_long_one() -> None:
    harness = ShardHarness()
    stable_group(harness)
    request = DescribeGroupsRequest(group_ids=tuple(f"group-{number}" for number in range(5_000)))
    assert {code_of(group) for group in harness.call(request).groups} == {ErrorCode.GROUP_ID_NOT_FOUND}
