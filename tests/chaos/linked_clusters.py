"""Two linked clusters under faults of both sides: a script that prints what it found as JSON.

Transactions and idempotent records are written to the source while nodes of either cluster are killed, paused, and cut
off, and while the link is cut. Then the faults end, the topics are promoted, and everything is compared.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
import tempfile
from pathlib import Path

from acknowledged import wait_for
from numbered_writers import PARTITIONS, Writer, ends, problems_of, read
from replica_files import committed_bytes
from two_clusters import NODE_MEMBERS, SETTLED_S, SOURCE, TARGET, Nemesis, cluster, network, print_logs

from tidelog import AdminClient, Consumer, NewTopic, TopicPartition
from tidelog.admin import MirrorTopicState
from tidelog.testing import LocalCluster
from tidelog_chaos.isolation import isolate

TRANSACTIONS, RECORDS, GROUP, LINK = "transactions", "records", "readers", "from-source"
FILTERS = '{"groupFilters": [{"name": "*", "patternType": "LITERAL", "filterType": "INCLUDE"}]}'


def replicas(cluster: LocalCluster, topic: str, offsets: list[int]) -> list[list[bytes]]:
    return [
        [committed_bytes(node.directory / "data" / f"{topic}-{p}", offsets[p]) for p in range(PARTITIONS)]
        for node in cluster.nodes.values()
    ]


def are_equal(source: LocalCluster, mirror: LocalCluster, topic: str, offsets: list[int]) -> bool:
    """Return whether all replicas of both clusters have the same bytes below these offsets."""
    try:
        first, *others = [*replicas(source, topic, offsets), *replicas(mirror, topic, offsets)]
    except AssertionError:
        # A replica still copies the last records.
        return False
    return all(other == first for other in others)


def commit_ends(source: LocalCluster, offsets: dict[str, list[int]]) -> list[TopicPartition]:
    """Commit the ends of the source's topics for a group there."""
    ended = [TopicPartition(topic, p, end) for topic, each in offsets.items() for p, end in enumerate(each)]
    with Consumer({"bootstrap.servers": source.bootstrap_servers, "group.id": GROUP}) as consumer:
        consumer.commit(offsets=ended, asynchronous=False)
    return ended


def judge(source: LocalCluster, mirror: LocalCluster, writers: list[Writer], admin: AdminClient) -> list[str]:
    """Compare both clusters, promote the mirrors, and write to them; return the problems."""
    problems = []
    topics = [writer.topic for writer in writers]
    offsets = {topic: ends(source, topic) for topic in topics}
    committed = commit_ends(source, offsets)
    for topic in topics:
        wait_for(lambda topic=topic: ends(mirror, topic) == offsets[topic], f"{topic} is not whole", SETTLED_S)
        wait_for(lambda topic=topic: are_equal(source, mirror, topic, offsets[topic]), f"{topic} differs", SETTLED_S)
    with Consumer({"bootstrap.servers": mirror.bootstrap_servers, "group.id": GROUP}) as consumer:

        def are_copied() -> bool:
            found = consumer.committed([TopicPartition(each.topic, each.partition) for each in committed], timeout=60)
            return [each.offset for each in found] == [each.offset for each in committed]

        wait_for(are_copied, "offsets of the group are not copied", SETTLED_S)
    for future in admin.promote_mirror_topics(topics).values():
        future.result(60)

    def are_stopped() -> bool:
        return all(m.state is MirrorTopicState.STOPPED for m in admin.describe_mirror_topics(LINK).result(60).values())

    wait_for(are_stopped, "not promoted", SETTLED_S)
    for writer in writers:
        after = Writer(mirror.bootstrap_servers, writer.topic, writer.is_transactional, next=writer.next)
        after.start()
        wait_for(lambda after=after: len(after.acknowledged) >= 20, "the promoted topic takes no records", SETTLED_S)
        after.stop()
        writer.acknowledged |= after.acknowledged
        writer.aborted |= after.aborted
        of_source, of_mirror = read(source, writer.topic), read(mirror, writer.topic)
        problems += problems_of(writer, of_mirror)
        for partition, records in enumerate(of_source):
            if of_mirror[partition][: len(records)] != records:
                problems.append(f"{writer.topic}-{partition} differs from the source's")
    return problems


def main() -> None:
    """Run once and print the outcome."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=20.0)
    options = parser.parse_args()
    isolate(network=True)
    with tempfile.TemporaryDirectory() as name, network(NODE_MEMBERS), contextlib.ExitStack() as stack:
        folder = Path(name)
        clusters = {side: stack.enter_context(cluster(side, folder)) for side in (SOURCE, TARGET)}
        source, mirror = clusters[SOURCE], clusters[TARGET]
        with AdminClient({"bootstrap.servers": source.bootstrap_servers}) as admin:
            for future in admin.create_topics([NewTopic(t, PARTITIONS, 3) for t in (TRANSACTIONS, RECORDS)]).values():
                future.result(60)
        admin = stack.enter_context(AdminClient({"bootstrap.servers": mirror.bootstrap_servers}))
        settings = {
            "bootstrap.servers": source.kafka_bootstrap_servers,
            "consumer.offset.sync.enable": "true",
            "consumer.offset.sync.ms": "500",
            "consumer.offset.group.filters": FILTERS,
        }
        admin.create_cluster_link(LINK, settings).result(60)
        for future in admin.create_mirror_topics(LINK, [TRANSACTIONS, RECORDS], replication_factor=3).values():
            future.result(60)
        writers = [Writer(source.bootstrap_servers, t, t == TRANSACTIONS) for t in (TRANSACTIONS, RECORDS)]
        for writer in writers:
            writer.start()
        nemesis = Nemesis(clusters, options.seed)
        try:
            nemesis.run(options.seconds)
        finally:
            for writer in writers:
                writer.stop()
        source.wait_ready(SETTLED_S)
        mirror.wait_ready(SETTLED_S)
        try:
            problems = judge(source, mirror, writers, admin)
        except AssertionError as error:
            problems = [str(error)]
        if problems:
            print_logs(clusters)
        outcome = {
            "seed": options.seed,
            "faults": dict(nemesis.counts),
            "acknowledged": {writer.topic: len(writer.acknowledged) for writer in writers},
            "problems": problems,
        }
    print(json.dumps(outcome))
    sys.exit(1 if problems else 0)


if __name__ == "__main__":
    main()
