"""Two linked clusters under faults of both sides: a script that prints what it found as JSON.

Transactions and idempotent records are written to the source while nodes of either cluster are killed, paused, and cut
off, and while the link is cut. Then the faults end, the topics are promoted, and everything is compared.

It runs in namespaces of its own: each node is in a network namespace on one bridge, and a neighbour entry that leads
nowhere cuts a direction.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import random
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from acknowledged import wait_for
from replica_files import committed_bytes

from tidelog import AdminClient, Consumer, KafkaError, KafkaException, NewTopic, Producer, TopicPartition
from tidelog.admin import MirrorTopicState
from tidelog.testing import LocalCluster
from tidelog.testing.process import Place
from tidelog_chaos.isolation import isolate, run

NODES, PARTITIONS = 3, 2
TRANSACTIONS, RECORDS, GROUP, LINK = "transactions", "records", "readers", "from-source"
FILTERS = '{"groupFilters": [{"name": "*", "patternType": "LITERAL", "filterType": "INCLUDE"}]}'
SUBNET, BRIDGE, CLIENTS = "10.214.0", "links", "10.214.0.254"
NOWHERE = "02:00:00:00:00:fe"
CONFIG = {"min.insync.replicas": "2", "replica.lag.time.max.ms": "3000", "default.replication.factor": "3"}
SETTLED_S = 120.0
Member = tuple[str, int]
"""A node: its side, ``source`` or ``mirror``, and its id."""
MEMBERS = [(side, node) for side in ("source", "mirror") for node in range(1, NODES + 1)]


def host(member: Member) -> str:
    side, node = member
    return f"{SUBNET}.{(10 if side == 'source' else 20) + node}"


def namespace(member: Member) -> str:
    side, node = member
    return f"{side[0]}{node}"


@contextlib.contextmanager
def network() -> Iterator[None]:
    """Join a namespace per node by a bridge, where the clients and the controllers are."""
    names = Path("/run/netns")
    names.mkdir(parents=True, exist_ok=True)
    run("mount", "-t", "tmpfs", "tidelog-links", str(names))
    run("ip", "link", "add", BRIDGE, "type", "bridge")
    run("ip", "addr", "add", f"{CLIENTS}/24", "dev", BRIDGE)
    run("ip", "link", "set", BRIDGE, "up")
    for member in MEMBERS:
        inside, outside = namespace(member), f"v{namespace(member)}"
        run("ip", "netns", "add", inside)
        run("ip", "link", "add", outside, "type", "veth", "peer", "name", "eth0", "netns", inside)
        run("ip", "link", "set", outside, "master", BRIDGE, "up")
        run("ip", "-n", inside, "addr", "add", f"{host(member)}/24", "dev", "eth0")
        run("ip", "-n", inside, "link", "set", "eth0", "up")
        run("ip", "-n", inside, "link", "set", "lo", "up")
    yield


def cut(first: Member, second: Member | None, *, is_cut: bool) -> None:
    """Drop, or pass again, what a node sends to another, or to controllers and clients."""
    target = CLIENTS if second is None else host(second)
    nowhere = ["lladdr", NOWHERE, "nud", "permanent"] if is_cut else []
    verb = "replace" if is_cut else "del"
    run("ip", "-n", namespace(first), "neigh", verb, target, "dev", "eth0", *nowhere)


def cluster(side: str, folder: Path) -> LocalCluster:
    def place(kind: str, node_id: int) -> Place:
        if kind == "controller":
            return Place(CLIENTS, 9093 if side == "source" else 9193)
        member = (side, node_id)
        return Place(host(member), 9094, ("nsenter", f"--net=/run/netns/{namespace(member)}", "--"), kafka_port=9092)

    return LocalCluster(1, NODES, folder / side, CONFIG, place=place)


@dataclass
class Writer:
    """A thread that writes numbers to all partitions, in transactions or one by one, and keeps their outcomes."""

    servers: str
    topic: str
    is_transactional: bool
    acknowledged: set[int] = field(default_factory=set)
    aborted: set[int] = field(default_factory=set)
    next: int = 0

    def __post_init__(self) -> None:
        self._stops = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"writer-{self.topic}")

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stops.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stops.is_set():
            with contextlib.suppress(KafkaException):
                self._write_until_failure()

    def _write_until_failure(self) -> None:
        settings: dict[str, object] = {
            "bootstrap.servers": self.servers,
            "enable.idempotence": True,
            "delivery.timeout.ms": 20_000,
            "linger.ms": 0,
        }
        if not self.is_transactional:
            producer = Producer(settings)
            while not self._stops.wait(0.002):
                self._write_record(producer)
            producer.flush(60)
            return
        producer = Producer({**settings, "transactional.id": self.topic, "transaction.timeout.ms": 20_000})
        producer.init_transactions(20)
        while not self._stops.is_set():
            self._transact(producer)

    def _write_record(self, producer: Producer) -> None:
        number, self.next = self.next, self.next + 1
        left = [PARTITIONS]

        def note(error: KafkaError | None, _: object) -> None:
            left[0] -= error is None
            if not left[0]:
                self.acknowledged.add(number)

        for partition in range(PARTITIONS):
            producer.produce(self.topic, str(number), partition=partition, on_delivery=note)
        producer.poll(0)

    def _transact(self, producer: Producer) -> None:
        number, self.next = self.next, self.next + 1
        producer.begin_transaction()
        for partition in range(PARTITIONS):
            producer.produce(self.topic, str(number), partition=partition)
        if number % 5 == 4:
            self.aborted.add(number)
            producer.abort_transaction(20)
            return
        producer.commit_transaction(20)
        self.acknowledged.add(number)


class Nemesis:
    """Faults of both sides, at most one per side at a time, drawn from a seed."""

    def __init__(self, clusters: dict[str, LocalCluster], seed: int) -> None:
        self._clusters = clusters
        self._random = random.Random(seed)
        self.counts: Counter[str] = Counter()
        self._cuts: Counter[tuple[Member, Member | None]] = Counter()

    def run(self, seconds: float) -> None:
        """Inject faults for so many seconds; all are over at the end."""
        ends_s = time.monotonic() + seconds
        while time.monotonic() < ends_s:
            faults = [self._begin(side) for side in self._random.choice([["source"], ["mirror"], ["source", "mirror"]])]
            time.sleep(self._random.uniform(0.5, 3.5))
            for member, fault in faults:
                self._end(member, fault)
            time.sleep(self._random.uniform(0.2, 1.5))

    def _begin(self, side: str) -> tuple[Member, str]:
        member = side, self._random.randint(1, NODES)
        fault = self._random.choice(["kill", "pause", "cut", "cut-link", "cut-one-way"])
        self.counts[f"{fault} {side}"] += 1
        handle = self._clusters[side].nodes[member[1]]
        match fault:
            case "kill":
                handle.kill()
            case "pause":
                handle.pause()
            case _:
                self._cut(member, fault, is_cut=True)
        return member, fault

    def _end(self, member: Member, fault: str) -> None:
        handle = self._clusters[member[0]].nodes[member[1]]
        match fault:
            case "kill":
                handle.start()
            case "pause":
                handle.resume()
            case _:
                self._cut(member, fault, is_cut=False)

    def _cut(self, member: Member, fault: str, *, is_cut: bool) -> None:
        for other in MEMBERS:
            if other == member or (fault == "cut-link" and other[0] == member[0]):
                continue
            self._pass(member, other, is_cut=is_cut)
            if fault != "cut-one-way":
                self._pass(other, member, is_cut=is_cut)
        if fault == "cut":
            self._pass(member, None, is_cut=is_cut)

    def _pass(self, first: Member, second: Member | None, *, is_cut: bool) -> None:
        """Cut a direction, or pass packets again once no fault cuts it."""
        before = self._cuts[first, second]
        self._cuts[first, second] += 1 if is_cut else -1
        if not before or not self._cuts[first, second]:
            cut(first, second, is_cut=is_cut)


def ends(cluster: LocalCluster, topic: str) -> list[int]:
    settings = {"bootstrap.servers": cluster.bootstrap_servers, "group.id": "ends"}
    with Consumer(settings) as consumer:
        return [consumer.get_watermark_offsets(TopicPartition(topic, p), timeout=60)[1] for p in range(PARTITIONS)]


def read(cluster: LocalCluster, topic: str) -> list[list[tuple[int, int]]]:
    """Return the offsets and numbers of the committed records of each partition."""
    found: list[list[tuple[int, int]]] = [[] for _ in range(PARTITIONS)]
    settings = {"bootstrap.servers": cluster.bootstrap_servers, "group.id": "all", "enable.partition.eof": True}
    with Consumer(settings) as consumer:
        consumer.assign([TopicPartition(topic, p, 0) for p in range(PARTITIONS)])
        ended: set[int] = set()
        deadline = time.monotonic() + SETTLED_S
        while len(ended) < PARTITIONS:
            assert time.monotonic() < deadline, f"{topic} has no end"
            message = consumer.poll(1)
            if message is None:
                continue
            error, partition = message.error(), message.partition()
            assert partition is not None
            if error is None:
                found[partition].append((message.offset() or 0, int(message.value() or b"")))
            elif error.code() == KafkaError._PARTITION_EOF:
                ended.add(partition)
    return found


def problems_of(writer: Writer, partitions: list[list[tuple[int, int]]]) -> list[str]:
    """Return what is lost, doubled, out of order, or there although it was aborted."""
    problems = []
    for partition, records in enumerate(partitions):
        numbers = [number for _, number in records]
        where = f"{writer.topic}-{partition}"
        if lost := writer.acknowledged.difference(numbers):
            problems.append(f"{where} has lost {sorted(lost)[:5]} and others, {len(lost)} in all")
        if writer.aborted.intersection(numbers):
            problems.append(f"{where} has aborted records {sorted(writer.aborted.intersection(numbers))[:5]}")
        if numbers != sorted(set(numbers)):
            problems.append(f"{where} has records twice or out of order")
    return problems


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
    with tempfile.TemporaryDirectory() as name, network(), contextlib.ExitStack() as stack:
        folder = Path(name)
        clusters = {side: stack.enter_context(cluster(side, folder)) for side in ("source", "mirror")}
        source, mirror = clusters["source"], clusters["mirror"]
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
            for side, each in clusters.items():
                for node in each.nodes.values():
                    print(f"--- {side} {node.name}\n{node.log_path.read_text()[-6_000:]}", file=sys.stderr)
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
