"""Whatever crashes, expires, grows, or is deleted and created again: each record is read once or counted as lost."""

from __future__ import annotations

import pytest
from example_counts import examples, steps
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule
from spark_source_model import STEPS, LossListener, ModelCluster, ModelQuery, ModelTopic

TOPICS = st.sampled_from(["t-a", "t-b"])
STARTS = ["earliest", "latest", '{"t-a":{"0":2,"1":-1}}', '{"t-a":{"0":-1,"1":-2}}']


class SourceMachine(RuleBasedStateMachine):
    """One query over a pattern."""

    @initialize(
        start=st.sampled_from(STARTS), limit=st.sampled_from(["", "3", "9"]), crash=st.sampled_from(["", *STEPS[1:]])
    )
    def begin(self, start: str, limit: str, crash: str) -> None:
        self.cluster = ModelCluster()
        self.cluster.create("t-a", 2)
        self.cluster.topics["t-a"].ends = [4, 1]
        options = {"subscribePattern": "t-.", "startingOffsets": start, "maxOffsetsPerTrigger": limit}
        self.query = ModelQuery(self.cluster, {key: value for key, value in options.items() if value})
        self.listener = LossListener(self.query).__enter__()
        self.query.trigger(crash)

    @rule(name=TOPICS, partition=st.integers(0, 3), count=st.integers(1, 9))
    def append(self, name: str, partition: int, count: int) -> None:
        topic = self.topic(name)
        if topic is not None:
            topic.ends[partition % len(topic.ends)] += count

    @rule(name=TOPICS, partition=st.integers(0, 3), count=st.integers(1, 9))
    def expire(self, name: str, partition: int, count: int) -> None:
        topic = self.topic(name)
        if topic is not None:
            index = partition % len(topic.ends)
            topic.starts[index] = min(topic.ends[index], topic.starts[index] + count)

    @rule(name=TOPICS)
    def delete(self, name: str) -> None:
        self.cluster.topics.pop(name, None)

    @rule(name=TOPICS, partitions=st.integers(1, 3), count=st.integers(0, 30))
    def create_or_grow(self, name: str, partitions: int, count: int) -> None:
        """Create the topic, again if it exists, with more or fewer records than before."""
        self.cluster.create(name, partitions)
        self.cluster.topics[name].ends[0] = count

    @rule(name=TOPICS)
    def add_partition(self, name: str) -> None:
        topic = self.topic(name)
        if topic is not None and len(topic.ends) < 4:
            topic.starts.append(0)
            topic.ends.append(0)

    @rule(
        crash_after=st.sampled_from(["", "", "", *STEPS]),
        meanwhile=st.sampled_from(["", "", "expire", "delete", "create"]),
        name=TOPICS,
    )
    def trigger(self, crash_after: str, meanwhile: str, name: str) -> None:
        changes = {
            "expire": lambda: self.expire(name, 0, 3),
            "delete": lambda: self.delete(name),
            "create": lambda: self.create_or_grow(name, 2, 20),
        }
        self.query.trigger(crash_after, changes.get(meanwhile, lambda: None))

    @rule()
    def available_now(self) -> None:
        self.query.available_now()

    @precondition(lambda self: self.query.reader is not None)
    @rule()
    def restart(self) -> None:
        self.query.reader = None

    @rule(pattern=st.sampled_from(["t-a", "t-."]))
    def restart_with_other_topics(self, pattern: str) -> None:
        """Restart; a topic that is left out for a while is not read again from its first record."""
        self.query.options["subscribePattern"] = pattern
        self.query.reader = None

    def topic(self, name: str) -> ModelTopic | None:
        return self.cluster.topics.get(name)

    def teardown(self) -> None:
        if not hasattr(self, "query"):
            return
        try:
            self.restart_with_other_topics("t-.")
            self.query.available_now()
            self.query.check()
        finally:
            self.listener.__exit__()


SourceMachine.TestCase.settings = settings(max_examples=examples(25), stateful_step_count=steps(25), deadline=None)
test_each_record_is_read_once_or_counted_as_lost = SourceMachine.TestCase


@pytest.mark.parametrize(("meanwhile", "lost"), [("expire", 3), ("delete", 13), ("create", 13)])
def test_losses_of_tasks_are_in_the_next_progress(meanwhile: str, lost: int) -> None:
    cluster = ModelCluster()
    cluster.create("t-a", 2)
    cluster.create("t-b", 1)
    cluster.topics["t-a"].ends = [10, 3]
    query = ModelQuery(cluster, {"subscribePattern": "t-.", "startingOffsets": "earliest"})
    changes = {
        "expire": lambda: cluster.topics["t-a"].starts.__setitem__(0, 3),
        "delete": lambda: cluster.topics.pop("t-a"),
        "create": lambda: cluster.create("t-a", 2),
    }
    query.trigger(meanwhile=changes[meanwhile])
    for _ in range(2):
        cluster.topics["t-b"].ends[0] += 1
        query.trigger()
        assert query.reader is not None
        assert query.reader.lost_by_tasks == query.reader.losses.unsure == lost
