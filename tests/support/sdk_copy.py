"""A program that copies like the query of the workload ``spark``, but with Tidelog's own clients and without a JVM.

It is exactly once, and keeps a checkpoint in the form of Spark's. With ``SDK_COPY_BUG`` it has a bug.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

from tidelog import Consumer, Producer, TopicPartition
from tidelog.message import OFFSET_BEGINNING
from tidelog_chaos.workload.spark.checkpoint import committed_batch

SETTINGS = json.loads(sys.stdin.readline())
COPIES, SERVERS, CHECKPOINT = SETTINGS["copies"], SETTINGS["servers"], Path(SETTINGS["checkpoint"])
BUG = os.environ.get("SDK_COPY_BUG", "")
CONSUMER = {
    **SERVERS,
    "group.id": "copy",
    "enable.auto.commit": False,
    "isolation.level": "read_uncommitted" if BUG == "uncommitted" else "read_committed",
}


def main() -> None:
    for folder in ("offsets", "commits"):
        (CHECKPOINT / folder).mkdir(parents=True, exist_ok=True)
    batch, _ = committed_batch(CHECKPOINT)
    with Consumer(CONSUMER) as consumer, Producer({**SERVERS, "transactional.id": "copy"}) as producer:
        producer.init_transactions()
        topics = consumer.list_topics().topics
        at = [TopicPartition(name, number) for name in COPIES for number in topics[name].partitions]
        begin = [
            place if place.offset >= 0 else TopicPartition(place.topic, place.partition, OFFSET_BEGINNING)
            for place in consumer.committed(at)
        ]
        consumer.assign(begin)
        positions = None
        while True:
            if BUG == "stop" and batch > 3:
                time.sleep(600)
            copy_batch(consumer, producer)
            found = consumer.position(at)
            offsets = [place.offset for place in found]
            if offsets != positions and min(offsets) >= 0:
                batch, positions = batch + 1, offsets
                log(batch, found)


def copy_batch(consumer: Consumer, producer: Producer) -> None:
    messages = consumer.consume(20, timeout=0.1)
    if not messages:
        return
    producer.begin_transaction()
    if BUG == "skip":
        messages = messages[1:]
    for message in messages:
        producer.produce(COPIES[message.topic()], message.value(), partition=message.partition())
    if BUG != "twice":
        positions = consumer.position(consumer.assignment())
        producer.send_offsets_to_transaction(positions, consumer.consumer_group_metadata())
    producer.commit_transaction()


def log(batch: int, positions: list[TopicPartition]) -> None:
    tree: dict[str, dict[str, int]] = {}
    for place in positions:
        tree.setdefault(place.topic, {})[str(place.partition)] = place.offset
    for folder, text in (("offsets", f"v1\n{{}}\n{json.dumps(tree)}"), ("commits", "v1\n{}")):
        temporary = CHECKPOINT / f"{folder}-{batch}"
        temporary.write_text(text)
        temporary.rename(CHECKPOINT / folder / str(batch))


main()
