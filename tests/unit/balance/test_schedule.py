"""Moves that begin while others are in progress."""

from tidelog.admin import PartitionReassignment
from tidelog.message import TopicPartition
from tidelog_cli.balance.planner import Move
from tidelog_cli.balance.schedule import next_moves


def move(index: int, before: tuple[int, ...], after: tuple[int, ...]) -> Move:
    return Move(TopicPartition("t", index), before, after, 1)


def test_each_node_has_at_most_its_number_of_moves_in_progress() -> None:
    pending = [move(0, (1,), (2,)), move(1, (1,), (3,)), move(2, (4,), (5,)), move(3, (1,), (5,))]
    assert next_moves(pending, {}, 1) == [pending[0], pending[2]]
    assert next_moves(pending, {}, 2) == pending[:3]


def test_moves_in_progress_count_and_do_not_begin_again() -> None:
    pending = [move(0, (1,), (2,)), move(1, (1,), (3,)), move(2, (4,), (5,))]
    ongoing = {TopicPartition("t", 2): PartitionReassignment((4, 5), (5,), (4,))}
    ongoing[TopicPartition("u", 0)] = PartitionReassignment((1, 6), (6,), (1,))
    assert next_moves(pending, ongoing, 1) == []
    assert next_moves(pending, ongoing, 2) == pending[:1]


def test_a_change_of_leaders_begins_whatever_is_in_progress() -> None:
    ongoing = {TopicPartition("u", 0): PartitionReassignment((1, 2), (2,), (1,))}
    swap = move(0, (1, 2), (2, 1))
    assert next_moves([swap], ongoing, 1) == [swap]
