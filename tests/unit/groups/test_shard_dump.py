"""A shard's state can be dumped amid its writes, and continues from the dump."""

from __future__ import annotations

import pickle

from group_shards import (
    ShardHarness,
    commit_request,
    consumer_heartbeat_request,
    heartbeat_request,
    join_new,
    join_request,
    leave_request,
    stable_group,
    subscription,
    sync_request,
)
from request_values import comparable

from tidelog_foundation.errors import ErrorCode
from tidelog_foundation.requests.partitions import TopicPartitions
from tidelog_node.groups.messages import DeleteGroupsRequest, OffsetDeleteRequest


def with_pending_writes() -> ShardHarness:
    """Return a shard with a pending write of each kind."""
    harness = ShardHarness()
    harness.set_topics(t=2, u=1)
    stable_group(harness)
    for group in ("static", "leaving", "upgraded"):
        call = harness.send(join_request(group=group, instance="i", protocols=[("range", subscription("t"))]))
        harness.pass_time(3_000)
        member = harness.responses[call].member_id
        harness.call(sync_request(member, 1, {member: b""}, group=group, instance="i"))
    for group in ("converted", "consumers", "mixed"):
        harness.call(consumer_heartbeat_request("m", group=group))
    harness.call(consumer_heartbeat_request("m", -1, group="converted"))
    classic, _ = join_new(harness, group="mixed", protocols=[("range", subscription("t"))])
    harness.call(commit_request({("t", 0): 1}, group="deleted"))
    harness.call(commit_request({("u", 0): 1}, group="old"))
    _, joining = join_new(harness, group="syncing")
    harness.pass_time(3_000)
    leader = harness.responses[joining].leader

    harness.holds_commits = True
    harness.send(sync_request(leader, 1, {leader: b"A"}, group="syncing"))
    harness.send(join_request(group="static", instance="i", protocols=[("range", subscription("t"))]))
    harness.send(leave_request(harness.responses[call].member_id, group="upgraded"))
    harness.send(consumer_heartbeat_request("m", group="upgraded"))
    harness.send(join_request(group="converted"))
    harness.send(consumer_heartbeat_request("n", group="consumers"))
    harness.send(consumer_heartbeat_request("m", -1, group="mixed"))
    harness.send(heartbeat_request(classic, 2, group="mixed"))
    harness.send(commit_request({("t", 0): 2}, group="simple"))
    harness.send(DeleteGroupsRequest(("deleted",)))
    harness.send(OffsetDeleteRequest("old", (TopicPartitions("u", (0,)),)))
    harness.set_topics(t=2)
    harness.pass_time(0)
    return harness


def test_shard_continues_from_a_dump_of_its_state() -> None:
    for code in (None, ErrorCode.NOT_LEADER_OR_FOLLOWER):
        harness = with_pending_writes()
        copy: ShardHarness = pickle.loads(pickle.dumps(harness))
        assert len(copy.uncommitted) > 8
        outcomes = []
        for each in (harness, copy):
            if code is None:
                each.holds_commits = False
                each.commit()
            else:
                each.fail_written(code)
            each.pass_time(60_000)
            outcomes.append([(call, comparable(response)) for call, response in each.responses.items()])
        assert outcomes[0] == outcomes[1]
