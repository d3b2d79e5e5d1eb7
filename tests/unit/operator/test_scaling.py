"""The rules of changed sizes: nothing leaves with replicas, votes change one at a time, and every change ends."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tidelog_operator import scaling
from tidelog_operator.resources import CONTROLLER, NODE
from tidelog_operator.scaling import NodesState


def nodes(replicas: int, **fields: object) -> NodesState:
    registered = dict.fromkeys(range(101, 101 + replicas), 5)
    return NodesState(replicas, **{"registered": registered, "pods": tuple(registered), **fields})  # type: ignore[arg-type]


def test_more_nodes_come_at_once() -> None:
    assert scaling.next_node_step(5, nodes(3)) == scaling.SetReplicas(NODE, 5)


def test_replica_that_has_nowhere_to_go_refuses_before_the_first_cordon() -> None:
    state = nodes(3, obstacles=("orders-0 cannot leave node 103: no room",))
    assert scaling.next_node_step(2, state) == scaling.Refuse("orders-0 cannot leave node 103: no room")


def test_leaving_nodes_are_cordoned_then_drained_then_stopped_then_unregistered() -> None:
    assert scaling.next_node_step(3, nodes(4)) == scaling.Cordon((104,))
    assert scaling.next_node_step(3, nodes(4, cordoned={104})) == scaling.Drain((104,))
    empty = {101: 5, 102: 5, 103: 5, 104: 0}
    assert scaling.next_node_step(3, nodes(4, cordoned={104}, registered=empty)) == scaling.SetReplicas(NODE, 3)
    stopped = nodes(3, registered=empty, fenced={104})
    assert scaling.next_node_step(3, stopped) == scaling.Unregister((104,))
    assert scaling.next_node_step(3, nodes(3, registered=empty)) == scaling.Settled()


def test_dead_node_that_leaves_needs_no_second_cordon() -> None:
    assert scaling.next_node_step(3, nodes(4, fenced={104}, marked={104})) == scaling.Drain((104,))


def test_size_that_is_wanted_again_lifts_the_cordon_of_the_operator_alone() -> None:
    state = nodes(4, cordoned={102, 104}, marked={104})
    assert scaling.next_node_step(4, state) == scaling.LiftCordon((104,))
    assert scaling.next_node_step(4, nodes(4, cordoned={102})) == scaling.Settled()


def test_stopped_node_with_replicas_stays_registered() -> None:
    state = nodes(3, registered={101: 1, 104: 2}, fenced={104})
    assert scaling.next_node_step(3, state) == scaling.Settled()


def test_new_controller_gets_its_vote_when_all_are_ready() -> None:
    def step(replicas: int, voters: set[int], observers: set[int], *, are_ready: bool = True) -> scaling.Step:
        return scaling.next_controller_step(5, replicas, voters, observers, are_ready=are_ready)

    assert step(3, {1, 2, 3}, set()) == scaling.SetReplicas(CONTROLLER, 5)
    assert step(5, {1, 2, 3}, {4, 5}, are_ready=False) == scaling.Settled()
    assert step(5, {1, 2, 3}, {4, 5}) == scaling.AddVoter(4)
    assert step(5, {1, 2, 3, 4}, {5}) == scaling.AddVoter(5)
    assert step(5, {1, 2, 3, 4, 5}, {101, 102}) == scaling.Settled()


def test_controllers_lose_their_votes_before_they_stop() -> None:
    def step(replicas: int, voters: set[int]) -> scaling.Step:
        return scaling.next_controller_step(3, replicas, voters, set(), are_ready=True)

    assert step(5, {1, 2, 3, 4, 5}) == scaling.RemoveVoter(5)
    assert step(5, {1, 2, 3, 4}) == scaling.RemoveVoter(4)
    assert step(5, {1, 2, 3}) == scaling.SetReplicas(CONTROLLER, 3)
    assert step(3, {1, 2, 3}) == scaling.Settled()


@given(
    st.integers(1, 6),
    st.dictionaries(st.integers(101, 106), st.integers(0, 3)),
    st.lists(st.integers(1, 6), max_size=4),
)
def test_any_sequence_of_sizes_ends_without_stopping_a_node_that_has_replicas(
    begin: int, held: dict[int, int], wishes: list[int]
) -> None:
    replicas, cordoned, marked = begin, set[int](), set[int]()
    registered = {i: held.get(i, 0) for i in range(101, 101 + begin)}
    for wanted in wishes:
        for _ in range(40):
            pods = set(range(101, 101 + replicas))
            fenced = registered.keys() - pods
            state = NodesState(replicas, dict(registered), fenced, cordoned - fenced, pods, (), frozenset(marked))
            step = scaling.next_node_step(wanted, state)
            match step:
                case scaling.SetReplicas(_, count):
                    lost = [i for i in range(101 + count, 101 + replicas) if registered.get(i)]
                    assert lost == [], "a node with replicas was stopped"
                    replicas = count
                    registered |= {i: 0 for i in range(101, 101 + replicas) if i not in registered}
                case scaling.Cordon(ids):
                    cordoned |= set(ids)
                    marked |= set(ids)
                case scaling.LiftCordon(ids):
                    cordoned -= set(ids)
                    marked -= set(ids)
                case scaling.Drain(ids):
                    moving = next(i for i in ids if registered[i])
                    registered[moving] -= 1
                    registered[101] += 1
                case scaling.Unregister(ids):
                    for i in ids:
                        assert registered.pop(i) == 0
                    cordoned -= set(ids)
                    marked -= set(ids)
                case scaling.Settled():
                    break
                case _:
                    raise AssertionError(step)
        assert replicas == wanted
        assert registered.keys() == set(range(101, 101 + wanted))
        assert not cordoned
