"""Partitions that the nemesis moves are given back to those who had them, whatever their cluster answers meanwhile."""

from __future__ import annotations

import random
from collections.abc import Mapping
from concurrent.futures import Future
from typing import Any, cast

import pytest

from tidelog.admin import AdminClient, NewPartitionReassignment
from tidelog.admin.metadata import BrokerMetadata, ClusterMetadata, PartitionMetadata, TopicMetadata
from tidelog.message import TopicPartition
from tidelog_chaos.moves import Moves
from tidelog_foundation.errors import ErrorCode, error_for

KEYS = ("t-0", "t-1", "t-2")
AT_HOME = {key: [1, 2, 3] for key in KEYS}
DICE = random.Random(1)


class Cluster:
    """Takes reassignments and completes them at once; ``answers`` says what a client learns of it."""

    def __init__(self, nodes: int) -> None:
        self.nodes = range(1, nodes + 1)
        self.replicas = dict(AT_HOME)
        self.answers = True
        self.hangs = False
        self.hanging: list[Future[None]] = []

    def list_topics(self, timeout: float) -> ClusterMetadata:
        if not self.answers:
            raise error_for(ErrorCode._TIMED_OUT, "nobody answers")
        partitions = {i: PartitionMetadata(i, r[0], r, r) for i, r in enumerate(self.replicas.values())}
        brokers = {node: BrokerMetadata(node, "h", 1) for node in self.nodes}
        return ClusterMetadata(brokers=brokers, topics={"t": TopicMetadata("t", partitions)})

    def alter_partition_reassignments(
        self, wanted: Mapping[TopicPartition, NewPartitionReassignment], **timeouts: float
    ) -> dict[TopicPartition, Future[None]]:
        futures = {}
        for partition, reassignment in wanted.items():
            self.replicas[f"{partition.topic}-{partition.partition}"] = list(reassignment.target_replicas)
            future: Future[None] = Future()
            if self.hangs:
                self.hanging.append(future)
            elif self.answers:
                future.set_result(None)
            else:
                future.set_exception(error_for(ErrorCode._TIMED_OUT, "the answer was lost"))
            futures[partition] = future
        return futures


def moves_of(cluster: Any) -> Moves:
    return Moves(cast(AdminClient, cluster), lambda: KEYS, 3)


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("kind", ["leader", "follower"])
def test_move_exchanges_one_replica_of_a_partition_for_a_node_without_one(seed: int, kind: str) -> None:
    cluster = Cluster(nodes=5)
    moves = moves_of(cluster)
    move = moves.begin(kind, random.Random(seed))
    assert move is not None
    for key, target in move.targets.items():
        assert cluster.replicas[key] == list(target)
        assert len(set(target)) == 3
        [gone] = {1, 2, 3} - set(target)
        assert (gone == 1) == (kind == "leader")
    moves.undo(move)
    assert cluster.replicas == AT_HOME


def test_move_takes_a_replica_away_where_every_node_has_one() -> None:
    cluster = Cluster(nodes=3)
    moves = moves_of(cluster)
    move = moves.begin("leader", DICE)
    assert move is not None
    assert {tuple(target) for target in move.targets.values()} == {(2, 3)}
    assert " [1, 2, 3] to [2, 3]" in str(move)
    moves.restore()
    assert cluster.replicas == AT_HOME


def test_partitions_that_are_on_their_way_are_left_alone() -> None:
    cluster = Cluster(nodes=4)
    cluster.replicas = {key: [1, 2, 3, 4] for key in KEYS}
    assert moves_of(cluster).begin("leader", DICE) is None


def test_partitions_that_an_earlier_move_has_in_hand_are_left_to_it() -> None:
    moves, taken = moves_of(Cluster(nodes=5)), list[str]()
    for seed in range(20):
        move = moves.begin("follower", random.Random(seed))
        taken += move.targets if move else ()
    assert sorted(taken) == list(KEYS)


def test_nothing_is_moved_while_nobody_answers() -> None:
    cluster = Cluster(nodes=4)
    cluster.answers = False
    assert moves_of(cluster).begin("leader", DICE) is None


def test_partitions_are_given_back_also_when_answers_were_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidelog_chaos.moves._RESTORE_S", 0.05)
    monkeypatch.setattr("tidelog_chaos.moves._PAUSE_S", 0.01)
    cluster = Cluster(nodes=4)
    moves = moves_of(cluster)
    move = moves.begin("leader", DICE)
    assert move is not None
    cluster.answers = False
    moves.undo(move)
    with pytest.raises(RuntimeError, match=r"t-\d.* could not be moved back in 0 s"):
        moves.restore()
    cluster.answers = True
    moves.restore()
    assert cluster.replicas == AT_HOME
    assert moves.begin("leader", DICE) is not None


def test_partitions_are_given_back_after_the_answer_to_their_move_and_nobody_waits_for_it() -> None:
    cluster = Cluster(nodes=4)
    moves = moves_of(cluster)
    cluster.hangs = True
    move = moves.begin("leader", DICE)
    assert move is not None
    moves.undo(move)
    moved = dict(cluster.replicas)
    assert moved != AT_HOME
    assert {key: moved[key] for key in move.targets} == {key: list(target) for key, target in move.targets.items()}
    cluster.hangs = False
    for future in cluster.hanging:
        future.set_exception(error_for(ErrorCode._TIMED_OUT, "nobody knows"))
    moves.restore()
    assert cluster.replicas == AT_HOME
