"""Topics that clients ask for: created in the background, each once, by what client and node allow."""

import asyncio
import contextlib
import dataclasses
import logging

import pytest
from request_values import code_of

from tidelog_foundation.errors import ErrorCode, error_for
from tidelog_foundation.requests.metadata import GetMetadataRequest
from tidelog_foundation.requests.quotas import QuotaClient
from tidelog_foundation.requests.topics import CreatableTopic, CreatableTopicResult, CreateTopicsResponse
from tidelog_node import handlers
from tidelog_node.server.topic_creation import TopicCreation


class Controllers:
    def __init__(self):
        self.requests = []
        self.clients = []
        self.failures = []
        self.errors = {}
        self.most = 1_000
        self.never = None
        self.created = []
        self.gate = asyncio.Event()
        self.gate.set()

    async def ask(self, request, timeout_s):
        self.requests.append(sorted(t.name for t in request.topics))
        self.clients.append(request.quota_client)
        assert {(t.num_partitions, t.replication_factor) for t in request.topics} == {(-1, -1)}
        await self.gate.wait()
        if self.failures:
            raise error_for(self.failures.pop(0), "for the test")
        if len(request.topics) > self.most or any(t.name == self.never for t in request.topics):
            raise error_for(ErrorCode.POLICY_VIOLATION, "too many partitions in one request")
        self.created += [topic.name for topic in request.topics]
        return CreateTopicsResponse(tuple(self.result_of(topic) for topic in request.topics))

    def result_of(self, topic):
        error = error_for(self.errors[topic.name], "for the test") if topic.name in self.errors else None
        return CreatableTopicResult(topic.name, error=error)


@contextlib.asynccontextmanager
async def running(controllers):
    creation = TopicCreation(controllers)
    task = asyncio.create_task(creation.run(), name="topic-creation")
    try:
        yield creation
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def test_topics_are_created_together_and_not_again_while_that_is_under_way():
    async def run():
        controllers = Controllers()
        controllers.gate.clear()
        async with running(controllers) as creation:
            creation.want(["a", "b"])
            await asyncio.sleep(0.01)
            creation.want(["b", "c"])
            creation.want(["c"])
            await asyncio.sleep(0.01)
            assert controllers.requests == [["a", "b"]]
            controllers.gate.set()
            await asyncio.sleep(0.01)
            assert controllers.requests == [["a", "b"], ["c"]]
            creation.want(["a"])
            await asyncio.sleep(0.01)
            assert controllers.requests[2:] == [["a"]], "it may have been deleted since"

    asyncio.run(run())


def test_topics_count_for_the_client_that_requests_them_first_and_internal_ones_for_none(caplog):
    alice, bob = QuotaClient("alice", "app"), QuotaClient("bob", "app")

    async def run():
        controllers = Controllers()
        controllers.gate.clear()
        controllers.errors = {"b": ErrorCode.THROTTLING_QUOTA_EXCEEDED}
        async with running(controllers) as creation:
            creation.want(["a", "c"], alice)
            creation.want(["b", "c"], bob)
            creation.want(["d"])
            controllers.gate.set()
            await asyncio.sleep(0.01)
            assert controllers.requests == [["a", "c"], ["b"], ["d"]]
            assert controllers.clients == [alice, bob, None]

    asyncio.run(run())
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING], "clients repeat requests"


def test_what_fails_is_logged_and_does_not_end_it(caplog):
    async def run():
        controllers = Controllers()
        controllers.failures = [ErrorCode.REQUEST_TIMED_OUT]
        controllers.errors = {
            "few": ErrorCode.INVALID_REPLICATION_FACTOR,
            "there": ErrorCode.TOPIC_ALREADY_EXISTS,
        }
        async with running(controllers) as creation:
            creation.want(["a"])
            await asyncio.sleep(0.01)
            creation.want(["few", "there", "good"])
            await asyncio.sleep(0.01)
        assert controllers.requests == [["a"], ["few", "good", "there"]]

    with caplog.at_level(logging.INFO):
        asyncio.run(run())
    assert "Topics could not be created: a: REQUEST_TIMED_OUT" in caplog.text
    assert "Topic few could not be created for a client" in caplog.text
    assert "Created topic good" in caplog.text
    assert "Topic there" not in caplog.text


def test_topics_that_are_too_many_for_one_request_are_created_in_several(caplog):
    names = [f"t{n:02}" for n in range(20)]

    async def run():
        controllers = Controllers()
        controllers.most = 3
        controllers.never = "t07"
        async with running(controllers) as creation:
            creation.want(names)
            await asyncio.sleep(0.01)
            assert controllers.created == [name for name in names if name != "t07"]
            creation.want(["later"])
            await asyncio.sleep(0.01)
            assert controllers.created[-1] == "later"

    asyncio.run(run())
    [warning] = [record.message for record in caplog.records if record.levelno == logging.WARNING]
    assert warning.startswith("Topics could not be created: t07: POLICY_VIOLATION")


def test_topics_that_no_controller_was_asked_for_are_said_to_have_failed(caplog):
    async def run():
        controllers = Controllers()
        controllers.failures = [ErrorCode.POLICY_VIOLATION, ErrorCode.REQUEST_TIMED_OUT]
        async with running(controllers) as creation:
            creation.want(["a", "b", "c"])
            await asyncio.sleep(0.01)
            assert controllers.requests == [["a", "b", "c"], ["a"]]

    asyncio.run(run())
    assert "Topics could not be created: a, b, c: REQUEST_TIMED_OUT" in caplog.text


def test_get_metadata_has_only_named_topics_created_that_may_be(cluster_of):
    class Wanted(list):
        def want(self, names, client=None):
            self.extend(names)

    async def run():
        async with cluster_of(1) as cluster:
            await cluster.create_topic(replicas=(1,))
            wanted = Wanted()
            context = dataclasses.replace(cluster.nodes[1].context, topic_creator=wanted)

            async def ask(**fields):
                response = await handlers.get_metadata(context, GetMetadataRequest(**fields))
                return [code_of(t.error) for t in response.topics]

            assert await ask(topics=["new"]) == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
            assert await ask(all_topics=True, allow_auto_topic_creation=True) == [ErrorCode.NONE]
            assert wanted == []
            found = await ask(topics=["t", "new", "a/b"], allow_auto_topic_creation=True)
            assert found == [
                ErrorCode.NONE,
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                ErrorCode.INVALID_TOPIC_EXCEPTION,
            ]
            assert wanted == ["new"]

    asyncio.run(run())


def test_internal_topics_are_created_as_the_node_says_and_others_as_the_controllers_do():
    async def run():
        requests = []

        class Controller:
            async def ask(self, request, timeout_s):
                requests.append(request)
                return CreateTopicsResponse()

        internal = CreatableTopic(name="__consumer_offsets", num_partitions=50, replication_factor=3)
        creation = TopicCreation(Controller(), [internal])
        task = asyncio.create_task(creation.run(), name="topic-creation")
        creation.want(["t", "__consumer_offsets"])
        await asyncio.sleep(0.01)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        assert list(requests[0].topics) == [
            internal,
            CreatableTopic(name="t", num_partitions=-1, replication_factor=-1),
        ]

    asyncio.run(run())


def test_reason_why_an_internal_topic_cannot_be_created_is_kept_and_logged_once(caplog):
    async def run():
        controllers = Controllers()
        controllers.errors = {"__consumer_offsets": ErrorCode.INVALID_REPLICATION_FACTOR}
        internal = CreatableTopic(name="__consumer_offsets", num_partitions=-1, replication_factor=-1)
        creation = TopicCreation(controllers, [internal])
        task = asyncio.create_task(creation.run(), name="topic-creation")
        for _ in range(3):
            creation.want(["__consumer_offsets"])
            await asyncio.sleep(0.01)
        assert creation.failure_of("__consumer_offsets") == "for the test"
        controllers.errors.clear()
        creation.want(["__consumer_offsets"])
        await asyncio.sleep(0.01)
        assert creation.failure_of("__consumer_offsets") is None
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    asyncio.run(run())
    assert [r.levelno for r in caplog.records].count(logging.WARNING) == 1


@pytest.mark.parametrize(
    ("partitions", "replicas", "expected"), [(None, None, (-1, -1)), (6, None, (6, -1)), (6, 3, (6, 3))]
)
def test_topic_has_the_numbers_that_the_node_sets(partitions, replicas, expected):
    class Controller:
        requests = ()

        async def ask(self, request, timeout_s):
            self.requests = request.topics
            return CreateTopicsResponse(tuple(CreatableTopicResult(t.name, error=None) for t in request.topics))

    async def run():
        controller = Controller()
        internal = CreatableTopic("__consumer_offsets", 50, 1)
        creation = TopicCreation(controller, [internal], partitions, replicas)
        task = asyncio.create_task(creation.run(), name="topic-creation")
        creation.want(["a", "__consumer_offsets"])
        await asyncio.sleep(0.01)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        other, topic = controller.requests
        assert (other.num_partitions, other.replication_factor) == (50, 1)
        assert (topic.name, topic.num_partitions, topic.replication_factor) == ("a", *expected)

    asyncio.run(run())
