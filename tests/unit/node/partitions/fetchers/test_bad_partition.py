"""Whatever is wrong with one partition, its fetcher goes on with the others, and with it when it is right again."""

import asyncio

import pytest

from tidelog.v1 import log_service_pb2 as pb
from tidelog_foundation.errors import ErrorCode, error_for
from tidelog_node.log import PartitionLog
from tidelog_node.replication import EpochEnd


class Wrong:
    """A fault of partition 0 on node 2, whose leader is node 1; it lasts while ``lasts`` is set."""

    def __init__(self):
        self.lasts = True
        self.met = 0

    def meet(self):
        self.met += self.lasts
        return self.lasts


def refuse_appends(error):
    """Let the log of partition 0 of node 2 fail with an error."""

    def prepare(cluster, wrong, monkeypatch):
        original = PartitionLog.append_as_follower

        def append(self, records, now_ms=0):
            if self.directory.name == "t-0" and "node-2" in str(self.directory) and wrong.meet():
                raise error()
            return original(self, records, now_ms)

        monkeypatch.setattr(PartitionLog, "append_as_follower", append)

    return prepare


def change_answers(change):
    """Let the leader's answers of partition 0 be other ones."""

    def prepare(cluster, wrong, monkeypatch):
        original = cluster.transport.fetch

        async def fetch(address, request, timeout_s):
            response = await original(address, request, timeout_s)
            for partition in response.results.values():
                if partition.index == 0 and (partition.records or partition.error) and wrong.meet():
                    change(partition)
            return response

        monkeypatch.setattr(cluster.transport, "fetch", fetch)

    return prepare


def flip_a_bit(partition):
    records = bytearray(partition.records)
    records[-1] ^= 1
    partition.records = bytes(records)


def cut_short(partition):
    partition.records = partition.records[:-1]


def answer_with(code):
    def change(partition):
        partition.records, partition.error = b"", error_for(code)

    return change


def answer_an_unknown_code(partition):
    partition.records, partition.error = b"", error_for(9_999)


def send_far_offsets(partition):
    partition.records, partition.diverging = b"", EpochEnd(-7, -7)


WRONGS = {
    "a corrupt answer": change_answers(flip_a_bit),
    "a torn answer": change_answers(cut_short),
    "an unknown topic id": change_answers(answer_with(ErrorCode.UNKNOWN_TOPIC_ID)),
    "a leader's failed disk": change_answers(answer_with(ErrorCode.KAFKA_STORAGE_ERROR)),
    "a range that is not there": change_answers(answer_with(ErrorCode.OFFSET_OUT_OF_RANGE)),
    "an error without a name": change_answers(answer_an_unknown_code),
    "epochs that make no sense": change_answers(send_far_offsets),
    "a log that refuses": refuse_appends(lambda: error_for(ErrorCode.KAFKA_STORAGE_ERROR, "not now")),
    "a log that breaks": refuse_appends(lambda: ZeroDivisionError("a mistake of ours")),
}


@pytest.mark.parametrize("name", WRONGS)
def test_bad_partition_stops_no_other_and_is_copied_when_it_is_right_again(cluster_of, wait_for, monkeypatch, name):
    wrong = Wrong()

    async def run():
        async with cluster_of(1, 2, 3) as cluster:
            WRONGS[name](cluster, wrong, monkeypatch)
            await cluster.create_topic(replicas=(1, 2, 3), partitions=2)
            await cluster.produce(1, b"bad", acks=pb.ACKS_LEADER, index=0)
            await wait_for(lambda: wrong.met >= 2)
            for number in range(3):
                result = await cluster.produce(1, b"%d" % number, index=1)
                assert not result.HasField("error")
            assert cluster.partition(2, 1).log.log_end_offset == 3
            assert cluster.partition(2, 0).log.log_end_offset == 0
            assert not cluster.nodes[2].failures
            wrong.lasts = False
            await wait_for(lambda: cluster.partition(2, 0).log.log_end_offset == 1)
            await wait_for(lambda: cluster.partition(1, 0).high_watermark == 1)

    asyncio.run(run())
