"""The rules of rolling restarts, and a roll of any cluster that keeps them."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from tidelog_operator import rolling
from tidelog_operator.resources import CONTROLLER, NODE


def pod(
    number: int,
    *,
    is_ready: bool = True,
    is_running: bool = True,
    is_stopping: bool = False,
    is_current: bool = False,
) -> rolling.Pod:
    role = CONTROLLER if number < 100 else NODE
    return rolling.Pod(f"tidelog-{role}-{number}", "uid", role, number, is_ready, is_running, is_stopping, is_current)


def test_roll_is_complete_when_all_pods_are_current_and_ready() -> None:
    assert rolling.next_step([pod(1, is_current=True), pod(101, is_current=True)], [], 1) == rolling.Complete()


def test_roll_begins_with_controllers_and_takes_the_leader_after_the_others() -> None:
    pods = [pod(1), pod(2), pod(3), pod(101), pod(102)]
    assert rolling.next_step(pods, [], 3) == rolling.AskThenRestart(pod(2))
    pods = [pod(1, is_current=True), pod(2, is_current=True), pod(3), pod(101), pod(102)]
    assert rolling.next_step(pods, [], 3) == rolling.AskThenRestart(pod(3))


def test_pod_that_is_not_ready_comes_first() -> None:
    unready = pod(101, is_ready=False)
    assert rolling.next_step([pod(1), unready, pod(102)], [], 1) == rolling.AskThenRestart(unready)


def test_nothing_restarts_while_a_restarted_pod_is_not_ready() -> None:
    pods = [pod(101), pod(102, is_ready=False, is_current=True)]
    assert rolling.next_step(pods, [], None) == rolling.WaitFor("waiting for tidelog-node-102 to be ready")


def test_nothing_restarts_while_a_pod_is_missing_or_stopping() -> None:
    assert isinstance(rolling.next_step([pod(101)], ["tidelog-node-102"], None), rolling.WaitFor)
    assert isinstance(rolling.next_step([pod(101), pod(102, is_stopping=True)], [], None), rolling.WaitFor)


def test_corrected_template_reaches_all_pods_that_cannot_start() -> None:
    broken = [pod(number, is_ready=False, is_running=False) for number in (101, 102)]
    assert rolling.next_step([pod(1), *broken], ["tidelog-node-103"], None) == rolling.Replace(tuple(broken))


_IDS = st.sets(st.sampled_from([1, 2, 3, 101, 102, 103, 104]), min_size=1).map(sorted)


@given(_IDS, st.data())
def test_every_roll_ends_and_never_has_two_running_processes_out(ids: list[int], data: st.DataObject) -> None:
    pods = {i: pod(i, is_current=data.draw(st.booleans()), is_ready=data.draw(st.booleans())) for i in ids}
    leader = data.draw(st.sampled_from(ids))
    restarts = 0
    for _ in range(4 * len(ids) + 4):
        step = rolling.next_step(list(pods.values()), [], leader)
        match step:
            case rolling.Complete():
                assert all(each.is_current and each.is_ready for each in pods.values())
                assert restarts <= len(ids)
                return
            case rolling.AskThenRestart(chosen):
                assert not chosen.is_current
                out = [each.id for each in pods.values() if not each.is_ready and each.id != chosen.id]
                assert out == [], "another process was out"
                pods[chosen.id] = replace(chosen, is_current=True, is_ready=False)
                restarts += 1
            case rolling.WaitFor():
                waiting = next(each for each in pods.values() if not each.is_ready)
                pods[waiting.id] = replace(waiting, is_ready=True)
            case rolling.Replace():
                raise AssertionError("every container runs")
    raise AssertionError("the roll does not end")
