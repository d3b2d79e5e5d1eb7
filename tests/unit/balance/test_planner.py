"""Properties of the planner of ``tidelog cluster rebalance``."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.example_counts import examples
from tidelog.message import TopicPartition
from tidelog_cli.balance.goals import Goal, Policy
from tidelog_cli.balance.placement import HARD_GOALS, Placement
from tidelog_cli.balance.planner import Plan, make_plan, steps
from tidelog_cli.balance.snapshot import ClusterSnapshot, Node, NodeState, Partition

MIB = 1_048_576
POLICY = Policy(slack_bytes=0, slack_bytes_per_second=0)


@st.composite
def snapshots(draw, *, leaving=True, fenced=True):
    """Clusters of up to 7 nodes, some leaving or down, with and without racks, capacities and equal loads."""
    count = draw(st.integers(1, 7))
    racks = draw(st.sampled_from([(None,), ("a", "b"), ("a", "b", "c"), ("a", "a", "b", None)]))
    states = [NodeState.AVAILABLE] * 4
    states += [NodeState.DRAINING, NodeState.UNREGISTERED] if leaving else []
    states += [NodeState.FENCED, NodeState.CORDONED] if fenced else []
    capacity = draw(st.sampled_from([None, 400 * MIB, 3_000 * MIB]))
    nodes = {
        i: Node(i, draw(st.sampled_from(racks)), draw(st.sampled_from(states)) if i else NodeState.AVAILABLE, capacity)
        for i in range(count)
    }
    partitions = {}
    for topic in range(draw(st.integers(0, 3))):
        factor = draw(st.integers(1, min(3, count)))
        for index in range(draw(st.integers(1, 8))):
            replicas = tuple(draw(st.permutations(range(count)))[:factor])
            running = [n for n in replicas if nodes[n].state is not NodeState.FENCED]
            leader = draw(st.sampled_from([*running, -1])) if running else -1
            sizes, rates = st.sampled_from([0, 10 * MIB, 70 * MIB]), st.integers(0, 200_000)
            partitions[TopicPartition(f"t{topic}", index)] = Partition(
                replicas, leader, draw(sizes), draw(rates), draw(rates)
            )
    return ClusterSnapshot(nodes, partitions)


def executed(snapshot: ClusterSnapshot, plan: Plan) -> ClusterSnapshot:
    """Return the cluster after a plan: replicas moved, preferred leaders elected."""
    partitions = dict(snapshot.partitions)
    for move in plan.moves:
        partitions[move.key] = replace(partitions[move.key], replicas=move.after, leader=move.after[0])
    for key in plan.elections:
        partitions[key] = replace(partitions[key], leader=partitions[key].replicas[0])
    return ClusterSnapshot(snapshot.nodes, partitions)


def racks_of(snapshot: ClusterSnapshot, replicas: tuple[int, ...]) -> set[str | None]:
    return {snapshot.nodes[node].rack for node in replicas}


@settings(max_examples=examples(30))
@given(snapshots())
def test_plan_keeps_the_number_of_replicas_and_moves_only_to_available_nodes(snapshot):
    for move in make_plan(snapshot, POLICY).moves:
        assert len(set(move.after)) == len(move.after) == len(move.before)
        assert all(snapshot.nodes[node].state is NodeState.AVAILABLE for node in move.adding)
        assert snapshot.partitions[move.key].leader >= 0 or not move.adding


@settings(max_examples=examples(30))
@given(snapshots())
def test_plan_never_moves_a_replica_of_a_node_that_may_return(snapshot):
    for move in make_plan(snapshot, POLICY).moves:
        staying = (NodeState.FENCED, NodeState.CORDONED)
        assert all(snapshot.nodes[node].state not in staying for node in move.removing)


@settings(max_examples=examples(30))
@given(snapshots())
def test_plan_puts_no_partition_in_fewer_racks_unless_they_leave(snapshot):
    available = {node.rack for node in snapshot.nodes.values() if node.state is NodeState.AVAILABLE}
    for move in make_plan(snapshot, POLICY).moves:
        before, after = racks_of(snapshot, move.before), racks_of(snapshot, move.after)
        assert len(after) >= min(len(before), len(available), len(move.after))


@settings(max_examples=examples(30))
@given(snapshots())
def test_each_step_reduces_the_score_in_order_of_the_goals(snapshot):
    placement = Placement(snapshot, POLICY)
    before = placement.score()
    for effect in steps(placement):
        after = placement.score()
        placement.check_invariants()
        assert after == tuple(a + b for a, b in zip(before, effect, strict=True))
        assert after < before
        assert all(a <= b for a, b in zip(after[:HARD_GOALS], before[:HARD_GOALS], strict=True))
        before = after


@settings(max_examples=examples(30))
@given(snapshots())
def test_plan_for_a_cluster_as_planned_is_empty(snapshot):
    plan = make_plan(snapshot, POLICY)
    again = make_plan(executed(snapshot, plan), POLICY)
    assert again.is_empty
    assert again.score_before == plan.score_after


@settings(max_examples=examples(25))
@given(snapshots(fenced=False))
def test_leaving_nodes_end_empty_or_the_plan_says_why_not(snapshot):
    plan = make_plan(snapshot, POLICY)
    left = executed(snapshot, plan)
    on_leaving = {
        (key, node) for key, p in left.partitions.items() for node in p.replicas if left.nodes[node].state.is_leaving
    }
    assert {(obstacle.key, obstacle.node) for obstacle in plan.obstacles} == on_leaving
    for key, _ in on_leaving:
        partition, running = left.partitions[key], [n for n in left.nodes.values() if not n.state.is_leaving]
        has_room = all(node.capacity_bytes is None for node in running)
        assert partition.leader < 0 or len(partition.replicas) > len(running) or not has_room


@settings(max_examples=examples(25))
@given(snapshots())
def test_plan_to_drain_touches_no_other_replica(snapshot):
    for move in make_plan(snapshot, POLICY, only_leaving=True).moves:
        assert all(snapshot.nodes[node].state.is_leaving for node in move.removing)
        assert move.removing


@settings(max_examples=examples(25))
@given(snapshots(leaving=False, fenced=False), st.integers(1, 3))
def test_counts_are_even_after_nodes_are_added_without_racks(snapshot, added):
    nodes = {i: Node(i) for i in range(len(snapshot.nodes) + added)}
    partitions = {
        key: Partition(partition.replicas, partition.replicas[0]) for key, partition in snapshot.partitions.items()
    }
    # From ten replicas a node on, the default threshold would accept one more and one less than a fair share.
    plan = make_plan(ClusterSnapshot(nodes, partitions), replace(POLICY, threshold_percent=0))
    for goal in (Goal.REPLICAS, Goal.LEADERS):
        values = [load.after[goal] for load in plan.loads]
        assert max(values) - min(values) <= 1, (goal, plan)


@settings(max_examples=examples(25))
@given(snapshots(), st.integers(0, 300 * MIB))
def test_plan_copies_at_most_max_bytes_and_says_that_more_would_help(snapshot, limit):
    plan = make_plan(snapshot, replace(POLICY, max_bytes=limit))
    assert plan.bytes <= limit
    if plan.is_limited:
        assert make_plan(snapshot, POLICY).score_after < plan.score_after


@settings(max_examples=examples(15))
@given(snapshots())
def test_plan_does_not_depend_on_the_order_of_nodes_and_partitions(snapshot):
    turned = ClusterSnapshot(dict(reversed(snapshot.nodes.items())), dict(reversed(snapshot.partitions.items())))
    assert make_plan(turned, POLICY) == make_plan(snapshot, POLICY)


def test_plan_for_a_new_node_moves_its_share_and_no_more():
    nodes = {i: Node(i) for i in range(4)}
    partitions = {TopicPartition("t", i): Partition((i % 3, (i + 1) % 3), i % 3, 100 * MIB) for i in range(12)}
    plan = make_plan(ClusterSnapshot(nodes, partitions))
    assert [load.after[Goal.REPLICAS] for load in plan.loads] == [6, 6, 6, 6]
    assert [load.after[Goal.LEADERS] for load in plan.loads] == [3, 3, 3, 3]
    assert plan.bytes == 600 * MIB
    assert sum(len(move.adding) for move in plan.moves) == 6


def test_drain_is_refused_by_name_when_the_replication_factor_exceeds_the_nodes():
    nodes = {0: Node(0), 1: Node(1, state=NodeState.DRAINING)}
    plan = make_plan(ClusterSnapshot(nodes, {TopicPartition("t", 0): Partition((0, 1), 0)}))
    assert [(o.key, o.node) for o in plan.obstacles] == [(TopicPartition("t", 0), 1)]
    assert plan.obstacles[0].reason == "its replication factor is 2, and 1 running nodes would remain"


@pytest.mark.parametrize("goal", [Goal.BYTES_IN, Goal.BYTES_OUT])
def test_hot_partitions_are_spread_while_counts_stay_even(goal):
    nodes = {i: Node(i) for i in range(3)}
    hot = {TopicPartition("hot", i): Partition((0,), 0, 0, 9_000_000, 9_000_000) for i in range(3)}
    cold = {TopicPartition("cold", i): Partition((1 + i % 2,), 1 + i % 2) for i in range(6)}
    plan = make_plan(ClusterSnapshot(nodes, hot | cold))
    assert [load.after[goal] for load in plan.loads] == [9_000_000] * 3
    assert [load.after[Goal.REPLICAS] for load in plan.loads] == [3, 3, 3]


def test_partitions_that_share_a_rack_are_moved_apart():
    nodes = {0: Node(0, "a"), 1: Node(1, "a"), 2: Node(2, "b")}
    plan = make_plan(ClusterSnapshot(nodes, {TopicPartition("t", 0): Partition((0, 1), 0)}))
    assert racks_of(ClusterSnapshot(nodes), plan.moves[0].after) == {"a", "b"}


def test_replica_does_not_leave_for_a_disk_without_room():
    nodes = {0: Node(0, capacity_bytes=100 * MIB), 1: Node(1, state=NodeState.DRAINING, capacity_bytes=100 * MIB)}
    partitions = {TopicPartition("t", 0): Partition((1,), 1, 70 * MIB), TopicPartition("t", 1): Partition((1,), 1, MIB)}
    plan = make_plan(ClusterSnapshot(nodes, partitions | {TopicPartition("u", 0): Partition((0,), 0, 20 * MIB)}))
    assert [move.key.partition for move in plan.moves] == [1]
    assert [o.reason for o in plan.obstacles] == [f"no other node has room for its {70 * MIB:,} bytes"]


def test_replica_does_not_leave_for_a_rack_that_has_one_while_another_rack_runs():
    full = Node(2, "b", capacity_bytes=MIB)
    nodes = {0: Node(0, "a"), 1: Node(1, "b", NodeState.DRAINING), 2: full, 3: Node(3, "a")}
    plan = make_plan(ClusterSnapshot(nodes, {TopicPartition("t", 0): Partition((0, 1), 0, 70 * MIB)}))
    assert not plan.moves
    assert "are in racks that have a replica" in plan.obstacles[0].reason
    without_rack_b = make_plan(
        ClusterSnapshot({i: nodes[i] for i in (0, 1, 3)}, {TopicPartition("t", 0): Partition((0, 1), 0, 70 * MIB)})
    )
    assert without_rack_b.moves[0].after == (0, 3)


def test_disk_that_is_too_full_is_emptied_before_anything_else():
    nodes = {0: Node(0, capacity_bytes=100 * MIB), 1: Node(1, capacity_bytes=1_000 * MIB)}
    partitions = {TopicPartition("t", i): Partition((0,), 0, 30 * MIB) for i in range(3)}
    plan = make_plan(ClusterSnapshot(nodes, partitions), Policy(goals=()))
    assert len(plan.moves) == 1
    assert plan.loads[0].after[Goal.DISK] == 60 * MIB
