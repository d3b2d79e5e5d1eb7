"""A mirror between two clusters under faults of all three: a script that prints what it found as JSON.

``tidelog mirror run`` copies two flows, one exactly once and one at least once, while transactions and idempotent
records are written to the source and a group reads them there. Nodes of either cluster and the mirror's process are
killed, paused and cut off. Then the faults end, and records, checkpoints and the group's offsets are compared.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path

from acknowledged import wait_for
from numbered_writers import PARTITIONS, Record, Writer, ends, problems_of, read
from two_clusters import (
    MIRROR,
    NODE_MEMBERS,
    SETTLED_S,
    SOURCE,
    TARGET,
    Member,
    Nemesis,
    cluster,
    network,
    print_logs,
    wrapper,
)

from tidelog import AdminClient, Consumer, KafkaError, KafkaException, NewTopic, TopicPartition
from tidelog.testing import LocalCluster
from tidelog_chaos.background import BackgroundThread
from tidelog_chaos.isolation import isolate
from tidelog_mirror.internal_records import Checkpoint, decode_checkpoint

TRANSACTIONS, RECORDS, GROUP = "transactions", "records", "readers"
EXACTLY, AT_LEAST = "X", "L"
"""The aliases of the source. Each has one flow to the target, ``T``."""
MOST_LAG = 20
FACTORS = ("replication", "heartbeats.topic.replication", "checkpoints.topic.replication", "offset.storage.replication")
TIMES = ("refresh.topics", "refresh.groups", "emit.checkpoints", "sync.group.offsets")
COMMAND = (sys.executable, "-c", "from tidelog_cli.main import main; main()", "mirror", "run")
Partition = tuple[str, int]
PROCESS: Member = (MIRROR, 1)


class MirrorProcess:
    """``tidelog mirror run`` in the mirror's namespace."""

    def __init__(self, folder: Path, settings: Mapping[str, str]) -> None:
        self._path = folder / "mirror.properties"
        self._path.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
        self._log_path = folder / "mirror.log"
        self._log_path.touch()

    @property
    def log(self) -> str:
        """The output of all processes."""
        return self._log_path.read_text()

    def start(self) -> None:
        """Start a process."""
        with self._log_path.open("ab") as log:
            command = [*wrapper(PROCESS), *COMMAND, str(self._path)]
            self._process = subprocess.Popen(command, stdout=log, stderr=log)

    def kill(self) -> None:
        """End the process by SIGKILL. It has not ended by itself."""
        assert self._process.poll() is None, f"the mirror has ended by itself with {self._process.returncode}"
        self._process.kill()
        self._process.wait()

    def pause(self) -> None:
        """Stop the process by SIGSTOP."""
        self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Let the process go on."""
        self._process.send_signal(signal.SIGCONT)

    def stop(self) -> int:
        """End the process by SIGTERM, and return its exit status."""
        self._process.send_signal(signal.SIGTERM)
        return self._process.wait(SETTLED_S)

    def close(self) -> None:
        """End the process, whatever its state."""
        self._process.kill()
        self._process.wait()


class Reader(BackgroundThread):
    """A thread with a member of the source's group, which commits what it has read."""

    def __init__(self, servers: str, topics: Sequence[str]) -> None:
        super().__init__("reader")
        self._servers = servers
        self._topics = list(topics)

    def _run(self) -> None:
        while not self._stopping.is_set():
            with contextlib.suppress(KafkaException):
                self._read_until_failure()

    def _read_until_failure(self) -> None:
        settings = {
            "bootstrap.servers": self._servers,
            "group.id": GROUP,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "session.timeout.ms": 6_000,
        }
        with Consumer(settings) as consumer:
            consumer.subscribe(self._topics)
            while not self._stopping.is_set():
                if any(message.error() is None for message in consumer.consume(50, 0.3)):
                    consumer.commit(asynchronous=False)


class Observer(BackgroundThread):
    """A thread that keeps how the group's offsets on the target change."""

    def __init__(self, servers: str, partitions: Sequence[Partition]) -> None:
        super().__init__("observer")
        self._servers = servers
        self._partitions = partitions
        self.offsets: dict[Partition, list[int]] = {partition: [] for partition in partitions}

    def _run(self) -> None:
        with Consumer({"bootstrap.servers": self._servers, "group.id": GROUP}) as consumer:
            while not self._stopping.wait(0.2):
                with contextlib.suppress(KafkaException):
                    for partition, offset in committed(consumer, self._partitions).items():
                        seen = self.offsets[partition]
                        if not seen or seen[-1] != offset:
                            seen.append(offset)


def committed(consumer: Consumer, partitions: Sequence[Partition]) -> dict[Partition, int]:
    """Return the committed offsets of the consumer's group."""
    found = consumer.committed([TopicPartition(*partition) for partition in partitions], timeout=10)
    return {(each.topic, each.partition): each.offset for each in found if each.offset >= 0}


def checkpoints(target: LocalCluster, alias: str) -> list[Checkpoint]:
    """Return all checkpoints of a flow, in their order."""
    topic, found = f"{alias}.checkpoints.internal", []
    settings = {"bootstrap.servers": target.bootstrap_servers, "group.id": "all", "enable.partition.eof": True}
    with Consumer(settings) as consumer:
        consumer.assign([TopicPartition(topic, 0, 0)])
        while True:
            message = consumer.poll(SETTLED_S)
            assert message is not None, f"{topic} has no end"
            error = message.error()
            if error is not None and error.code() == KafkaError._PARTITION_EOF:
                return found
            if error is None:
                found.append(decode_checkpoint(message.key(), message.value()))


def problems_of_copies(where: str, expected: Sequence[Record], found: Sequence[Record], *, exactly: bool) -> list[str]:
    """Return what differs between a partition's records on the source and on the target.

    At least once, records may be repeated: copies go back to an earlier record, and continue from there.
    """
    contents = [record[1:] for record in expected]
    copies = [record[1:] for record in found]
    if exactly:
        if copies == contents:
            return []
        at = next((i for i, (a, b) in enumerate(zip(contents, copies, strict=False)) if a != b), len(copies))
        return [f"{where}: {len(copies)} of {len(contents)} records; {copies[at : at + 3]} for {contents[at : at + 3]}"]
    index = {content: number for number, content in enumerate(contents)}
    unknown = [copy for copy in copies if copy not in index]
    if unknown:
        return [f"{where}: {unknown[:3]} are not on the source"]
    numbers = [index[copy] for copy in copies]
    problems = []
    if lost := sorted(set(index.values()).difference(numbers)):
        problems.append(f"{where} has lost the records at {lost[:5]}, {len(lost)} in all")
    first = list(dict.fromkeys(numbers))
    if first != sorted(first):
        problems.append(f"{where}: the first copies are out of order")
    if any(after > before + 1 for before, after in pairwise(numbers)):
        problems.append(f"{where}: repeats leave records out")
    return problems


def repeats(expected: Sequence[Record], found: Sequence[Record]) -> int:
    """Return how many times copies go back to an earlier record."""
    index = {record[1:]: number for number, record in enumerate(expected)}
    numbers = [index.get(record[1:], -1) for record in found]
    return sum(after <= before for before, after in pairwise(numbers))


def problems_of_offset(
    where: str, upstream: int, downstream: int, expected: Sequence[Record], found: Sequence[Record]
) -> list[str]:
    """Return whether a consumer that continues at a translated offset misses a record."""
    unread = {record[1:] for record in expected if record.offset >= upstream}
    lost = unread.difference(record[1:] for record in found if record.offset >= downstream)
    if not lost:
        return []
    return [f"{where}: {upstream} was translated to {downstream}, {len(lost)} records are lost: {sorted(lost)[:2]}"]


def problems_of_group(
    emitted: Sequence[Checkpoint],
    observed: Sequence[int],
    records: tuple[Sequence[Record], Sequence[Record]],
    where: str,
) -> list[str]:
    """Return which checkpoints and offsets of a partition go back, or lose a record."""
    problems: list[str] = []
    for checkpoint in emitted:
        problems += problems_of_offset(where, checkpoint.upstream_offset, checkpoint.downstream_offset, *records)
    for former, after in pairwise(emitted):
        if after.upstream_offset >= former.upstream_offset and after.downstream_offset < former.downstream_offset:
            problems.append(f"{where}: the checkpoint {after} goes back from {former}")
    if list(observed) != sorted(observed):
        problems.append(f"{where}: the group's offset goes back: {observed}")
    if unknown := set(observed).difference(each.downstream_offset for each in emitted):
        problems.append(f"{where}: the group has offsets without a checkpoint: {sorted(unknown)[:5]}")
    return problems


def catch_up(source: LocalCluster, target: LocalCluster, isolations: Mapping[str, str], topics: Sequence[str]) -> None:
    """Wait until the target has the last record of each partition."""
    for alias, isolation in isolations.items():
        for topic in topics:
            last = [records[-1][1:] for records in read(source, topic, isolation)]

            def has_last(remote: str = f"{alias}.{topic}", last: list[object] = last) -> bool:  # type: ignore[assignment]
                return [records[-1][1:] if records else None for records in read(target, remote)] == last

            wait_for(has_last, f"{alias}.{topic} is not whole", SETTLED_S)


def wait_for_offsets(source: LocalCluster, target: LocalCluster, topics: Sequence[str]) -> None:
    """Commit the source's ends for the group, and wait until its translated offsets are near the target's."""
    with Consumer({"bootstrap.servers": source.bootstrap_servers, "group.id": GROUP}) as consumer:
        for topic in topics:
            wanted = [TopicPartition(topic, p, end) for p, end in enumerate(ends(source, topic))]
            consumer.commit(offsets=wanted, asynchronous=False)
    remotes = [f"{alias}.{topic}" for alias in (EXACTLY, AT_LEAST) for topic in topics]
    copies = {remote: read(target, remote) for remote in remotes}
    partitions = [(remote, p) for remote in remotes for p in range(PARTITIONS)]
    with Consumer({"bootstrap.servers": target.bootstrap_servers, "group.id": GROUP}) as consumer:

        def unread() -> dict[Partition, int]:
            found = committed(consumer, partitions)
            return {
                (remote, p): sum(record.offset >= found.get((remote, p), 0) for record in copies[remote][p])
                for remote, p in partitions
            }

        try:
            wait_for(lambda: max(unread().values()) <= MOST_LAG + 1, "translated offsets lag", SETTLED_S)
        except AssertionError as error:
            raise AssertionError(f"{error}: {unread()}") from error


def compare(
    source: LocalCluster,
    target: LocalCluster,
    writers: Sequence[Writer],
    isolations: Mapping[str, str],
    observed: Mapping[Partition, Sequence[int]],
) -> tuple[list[str], dict[str, int]]:
    """Return the problems of a mirror that has caught up, and how often each remote topic repeats records."""
    problems: list[str] = []
    repeated: dict[str, int] = {}
    for alias, isolation in isolations.items():
        emitted = checkpoints(target, alias)
        for writer in writers:
            remote = f"{alias}.{writer.topic}"
            of_source, of_target = read(source, writer.topic, isolation), read(target, remote)
            if alias == EXACTLY:
                problems += problems_of(writer, of_target, remote)
            for p, records in enumerate(zip(of_source, of_target, strict=True)):
                where = f"{remote}-{p}"
                problems += problems_of_copies(where, *records, exactly=alias == EXACTLY)
                repeated[where] = repeats(*records)
                of_group = [
                    each for each in emitted if (each.group_id, each.topic, each.partition) == (GROUP, remote, p)
                ]
                problems += problems_of_group(of_group, observed[remote, p], records, where)
    return problems, {where: count for where, count in repeated.items() if count}


def settings_of(source: LocalCluster, target: LocalCluster, isolation: str) -> dict[str, str]:
    """Return the mirror's file: two flows from the source, under two aliases."""
    return {
        "clusters": f"{EXACTLY}, {AT_LEAST}, T",
        f"{EXACTLY}.bootstrap.servers": source.kafka_bootstrap_servers,
        f"{AT_LEAST}.bootstrap.servers": source.kafka_bootstrap_servers,
        "T.bootstrap.servers": target.kafka_bootstrap_servers,
        f"{EXACTLY}->T.enabled": "true",
        f"{AT_LEAST}->T.enabled": "true",
        "topics": f"{TRANSACTIONS}, {RECORDS}",
        "groups": GROUP,
        "emit.heartbeats.enabled": "false",
        f"{EXACTLY}->T.exactly.once.source.support": "enabled",
        f"{AT_LEAST}->T.consumer.isolation.level": isolation,
        f"{AT_LEAST}->T.offset-syncs.topic.location": "target",
        "offset.flush.interval.ms": "1000",
        "offset.storage.partitions": "3",
        "offset-syncs.topic.replication.factor": "3",
        "offset.lag.max": str(MOST_LAG),
        "sync.group.offsets.enabled": "true",
        "consumer.fetch.max.wait.ms": "100",
        **{f"{name}.factor": "3" for name in FACTORS},
        **{f"{name}.interval.seconds": "1" for name in TIMES},
    }


def judge(
    source: LocalCluster,
    target: LocalCluster,
    mirror: MirrorProcess,
    writers: Sequence[Writer],
    isolations: Mapping[str, str],
    observer: Observer,
) -> tuple[list[str], dict[str, int]]:
    """Wait until the mirror has caught up, stop it, and compare."""
    topics = [writer.topic for writer in writers]
    catch_up(source, target, isolations, topics)
    wait_for_offsets(source, target, topics)
    status = mirror.stop()
    observer.stop()
    problems = [f"the mirror has stopped with status {status}"] if status else []
    found, repeated = compare(source, target, writers, isolations, observer.offsets)
    return [*problems, *found], repeated


def main() -> None:
    """Run once and print the outcome."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=20.0)
    options = parser.parse_args()
    isolate(network=True)
    # Half of the seeds copy aborted transactions at least once, as Kafka's consumers read them by default.
    isolation = "read_committed" if options.seed % 2 else "read_uncommitted"
    isolations = {EXACTLY: "read_committed", AT_LEAST: isolation}
    with tempfile.TemporaryDirectory() as name, network([*NODE_MEMBERS, PROCESS]), contextlib.ExitStack() as stack:
        folder = Path(name)
        clusters = {side: stack.enter_context(cluster(side, folder)) for side in (SOURCE, TARGET)}
        source, target = clusters[SOURCE], clusters[TARGET]
        topics = [TRANSACTIONS, RECORDS]
        with AdminClient({"bootstrap.servers": source.bootstrap_servers}) as admin:
            for future in admin.create_topics([NewTopic(topic, PARTITIONS, 3) for topic in topics]).values():
                future.result(60)
        mirror = MirrorProcess(folder, settings_of(source, target, isolation))
        mirror.start()
        stack.callback(mirror.close)
        writers = [Writer(source.bootstrap_servers, topic, topic == TRANSACTIONS) for topic in topics]
        reader = Reader(source.bootstrap_servers, topics)
        partitions = [(f"{alias}.{topic}", p) for alias in isolations for topic in topics for p in range(PARTITIONS)]
        observer = Observer(target.bootstrap_servers, partitions)
        nemesis = Nemesis(clusters, options.seed, mirror)
        problems: list[str] = []
        repeated: dict[str, int] = {}
        threads = [*writers, reader]
        for thread in (*threads, observer):
            thread.start()
        try:
            try:
                # A third of the seeds puts the start under faults too.
                if options.seed % 3:
                    wait_for(lambda: all(observer.offsets.values()), "no offsets are translated", SETTLED_S)
                nemesis.run(options.seconds)
            finally:
                for thread in threads:
                    thread.stop()
            source.wait_ready(SETTLED_S)
            target.wait_ready(SETTLED_S)
            problems, repeated = judge(source, target, mirror, writers, isolations, observer)
        except AssertionError as error:
            problems = [str(error)]
        finally:
            observer.stop()
        if problems:
            print(f"--- mirror\n{mirror.log[-20_000:]}", file=sys.stderr)
            print_logs(clusters)
        outcome = {
            "seed": options.seed,
            "faults": dict(nemesis.counts),
            "acknowledged": {writer.topic: len(writer.acknowledged) for writer in writers},
            "repeats": repeated,
            "restarts": mirror.log.count("copying ended"),
            "offsets": {f"{topic}-{p}": len(found) for (topic, p), found in observer.offsets.items()},
            "problems": problems,
        }
    print(json.dumps(outcome))
    sys.exit(1 if problems else 0)


if __name__ == "__main__":
    main()
