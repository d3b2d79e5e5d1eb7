"""ConsumerGroupHeartbeat in both versions, with the real coordinator behind it (KIP-848, KIP-1082)."""

import asyncio
import uuid

from kafka_groups import OTHER_TOPIC_ID, TOPIC_ID, kafka_groups

from tidelog_foundation.errors import ErrorCode
from tidelog_node.kafka.protocol.messages.group_members import ConsumerGroupHeartbeatRequest, HeartbeatTopicPartitions


def running(test, path, **settings):
    """Run a coroutine with a node's groups."""

    async def run():
        async with kafka_groups(path, **settings) as groups:
            await test(groups)

    asyncio.run(run())


def joining(member_id="m", topics=("t",), **fields):
    """Return the first heartbeat of a member."""
    request = ConsumerGroupHeartbeatRequest("g", member_id, 0, rebalance_timeout_ms=10_000, topic_partitions=[])
    request.subscribed_topic_names = None if topics is None else list(topics)
    for name, value in fields.items():
        setattr(request, name, value)
    return request


def owned(response):
    """Return the partitions of a response by topic id, None where it has none."""
    if response.assignment is None:
        return None
    return {topic.topic_id: topic.partitions for topic in response.assignment.topic_partitions}


def owning(member_id, epoch, topics):
    """Return the heartbeat of a member that says what it owns."""
    named = [HeartbeatTopicPartitions(topic_id, partitions) for topic_id, partitions in topics.items()]
    return ConsumerGroupHeartbeatRequest("g", member_id, epoch, topic_partitions=named)


def test_member_joins_lives_and_leaves(tmp_path):
    async def test(groups):
        for version in (0, 1):
            joined = await groups.ask(joining(topics=["t", "u"]), version)
            assert (joined.error_code, joined.error_message, joined.member_id) == (0, None, "m")
            assert joined.heartbeat_interval_ms == 5_000
            assert owned(joined) == {TOPIC_ID: [0, 1, 2], OTHER_TOPIC_ID: [0]}
            same = await groups.ask(ConsumerGroupHeartbeatRequest("g", "m", joined.member_epoch), version)
            assert (same.error_code, same.member_epoch, owned(same)) == (0, joined.member_epoch, None)
            left = await groups.ask(ConsumerGroupHeartbeatRequest("g", "m", -1), version)
            assert (left.error_code, left.member_epoch, owned(left)) == (0, -1, None)

    running(test, tmp_path)


def test_partitions_move_to_a_second_member_when_the_first_has_given_them_up(tmp_path):
    async def test(groups):
        first = await groups.ask(joining("a"), 1)
        second = await groups.ask(joining("b"), 1)
        assert owned(second) == {}
        told = await groups.ask(owning("a", first.member_epoch, owned(first)), 1)
        kept = owned(told)
        assert len(kept[TOPIC_ID]) < 3
        given = await groups.ask(owning("a", told.member_epoch, kept), 1)
        assert given.member_epoch == second.member_epoch
        got = await groups.ask(owning("b", second.member_epoch, {}), 1)
        assert sorted(kept[TOPIC_ID] + owned(got)[TOPIC_ID]) == [0, 1, 2]

    running(test, tmp_path)


def test_id_of_a_member_is_its_own_from_version_1_on(tmp_path):
    async def test(groups):
        one, two = [await groups.ask(joining(""), 0) for _ in range(2)]
        assert len({uuid.UUID(one.member_id), uuid.UUID(two.member_id)}) == 2
        again = await groups.ask(owning(one.member_id, one.member_epoch, owned(one)), 0)
        assert (again.error_code, again.member_id) == (0, one.member_id)
        for request, version in ((joining(""), 1), (ConsumerGroupHeartbeatRequest("g", "", 1), 0)):
            refused = await groups.ask(request, version)
            assert refused.error_code == ErrorCode.INVALID_REQUEST.code
            assert refused.member_id is None
            assert "member_id" in refused.error_message

    running(test, tmp_path)


def test_regular_expression_subscribes_from_version_1_on(tmp_path):
    async def test(groups):
        request = joining(topics=None, subscribed_topic_regex="[tu]")
        refused = await groups.ask(request, 0)
        assert refused.error_code == ErrorCode.INVALID_REQUEST.code
        assert owned(await groups.ask(request, 1)) == {TOPIC_ID: [0, 1, 2], OTHER_TOPIC_ID: [0]}
        broken = await groups.ask(joining("x", topics=None, subscribed_topic_regex="["), 1)
        assert broken.error_code == ErrorCode.INVALID_REGULAR_EXPRESSION.code

    running(test, tmp_path)


def test_heartbeats_are_refused_with_the_codes_of_kafka(tmp_path):
    async def test(groups):
        joined = await groups.ask(joining(instance_id="i"), 1)
        epoch = joined.member_epoch
        heartbeat = ConsumerGroupHeartbeatRequest
        for request, code in (
            (heartbeat("g", "m", epoch + 1), ErrorCode.FENCED_MEMBER_EPOCH),
            (heartbeat("g", "nobody", epoch), ErrorCode.UNKNOWN_MEMBER_ID),
            (heartbeat("none", "m", epoch), ErrorCode.GROUP_ID_NOT_FOUND),
            (heartbeat("", "m", epoch), ErrorCode.INVALID_REQUEST),
            (heartbeat(" \t", "m", epoch), ErrorCode.INVALID_REQUEST),
            (heartbeat("none", " ", 7), ErrorCode.INVALID_REQUEST),
            (heartbeat("none", "m", 7, server_assignor="none"), ErrorCode.UNSUPPORTED_ASSIGNOR),
            (heartbeat("none", "m", 7), ErrorCode.GROUP_ID_NOT_FOUND),
            (joining("second", instance_id="i"), ErrorCode.UNRELEASED_INSTANCE_ID),
            (joining("second"), ErrorCode.GROUP_MAX_SIZE_REACHED),
            (joining("second", server_assignor="none"), ErrorCode.UNSUPPORTED_ASSIGNOR),
            (heartbeat("g", "m", -3), ErrorCode.INVALID_REQUEST),
        ):
            refused = await groups.ask(request, 1)
            assert (refused.error_code, refused.member_id, owned(refused)) == (code.code, None, None), request
            assert refused.error_message

    running(test, tmp_path, consumer_max_size=1)


def test_members_of_the_two_protocols_that_do_not_understand_each_other_are_refused(tmp_path):
    async def test(groups):
        joined = await groups.ask(joining(), 1)
        for version in (0, 9):
            other = await groups.join(version, protocol_type="connect")
            assert other.error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL.code
            assert (await groups.join(version)).error_code == ErrorCode.INVALID_REQUEST.code  # no subscription
        await groups.ask(ConsumerGroupHeartbeatRequest("g", "m", -1), 1)
        classic = await groups.single_member()
        assert classic.error_code == 0
        assert (await groups.ask(joining(), 1)).error_code == ErrorCode.GROUP_ID_NOT_FOUND.code
        beat = ConsumerGroupHeartbeatRequest("g", "m", joined.member_epoch)
        assert (await groups.ask(beat, 1)).error_code == ErrorCode.UNKNOWN_MEMBER_ID.code

    running(test, tmp_path)
