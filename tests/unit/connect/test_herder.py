"""The herder: records of requests, the state that they add up to, and the runs that the supervisor decides."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from support.example_counts import examples

from tidelog_connect.herder.errors import RequestError, bad_request
from tidelog_connect.herder.herder import Herder, Result
from tidelog_connect.herder.records import Record, State, Store, TargetState, decoded
from tidelog_connect.herder.state import GroupState
from tidelog_connect.herder.supervision import StartConnector, StopConnector, Supervisor

SINK = {"connector.class": "Sink", "tasks.max": "2"}


class FakePlugins:
    def kind(self, connector_class: str) -> str:
        if connector_class not in ("Source", "Sink"):
            raise bad_request(f"no class {connector_class}")
        return connector_class.lower()

    def errors(self, config: Mapping[str, str]) -> Sequence[str]:
        self.kind(config["connector.class"])
        return ["Invalid value x for tasks.max"] if config.get("tasks.max") == "x" else []


def task_configs(config: Mapping[str, str]) -> Sequence[Mapping[str, str]]:
    if config.get("broken"):
        raise ValueError("cannot be planned")
    return [dict(config)] * int(config.get("tasks.max", "1"))


class Group:
    """A state, a herder and the supervisor of its leader, with queries that start when `run` is called."""

    def __init__(self) -> None:
        self.state = GroupState()
        self.herder = Herder(self.state, FakePlugins(), max_connectors=3)
        self.log: list[tuple[Record, int]] = []
        self.running: dict[str, StartConnector] = {}
        self.pending: list[StartConnector | StopConnector] = []
        self.supervisor = self.lead(1)

    def lead(self, epoch: int) -> Supervisor:
        self.running, self.pending, self.epoch = {}, [], epoch
        self.supervisor = Supervisor("a:8083", epoch, "1.0", task_configs)
        return self.supervisor

    def write(self, records: Sequence[Record]) -> None:
        for record in records:
            key, value = record.encoded()
            again = decoded(record.store, key, value)
            assert again == record
            # As in a worker that leads: the records that it writes have its epoch in place of an offset.
            self.state.replay(record, self.epoch)
            self.log.append((record, len(self.log)))
            self.state.check_invariants()

    def do(self, result: Result) -> Any:
        self.write(result.records)
        return result.response

    def step(self) -> None:
        found = self.supervisor.step(self.state)
        self.write(found.records)
        self.pending += found.commands
        self.supervisor.check_invariants()

    def execute(self) -> None:
        command = self.pending.pop(0)
        if isinstance(command, StartConnector):
            assert command.name not in self.running
            self.running[command.name] = command
            self.write(self.supervisor.started(self.state, command.name, command.run))
        else:
            del self.running[command.name]
            self.supervisor.ended(command.name, command.run)

    def settle(self) -> None:
        for _ in range(50):
            self.step()
            if not self.pending:
                return
            while self.pending:
                self.execute()
        raise AssertionError("the supervisor does not settle")

    def states(self, name: str) -> tuple[str, list[str]]:
        status = self.herder.status(name)
        return status["connector"]["state"], [task["state"] for task in status["tasks"]]


def test_herder_creates_a_connector_whose_tasks_run() -> None:
    group = Group()
    answer = group.do(group.herder.create("snk", SINK))
    assert answer == {"name": "snk", "config": {**SINK, "name": "snk"}, "tasks": [], "type": "sink"}
    group.settle()
    assert group.states("snk") == ("RUNNING", ["RUNNING", "RUNNING"])
    assert group.running["snk"].tasks == 2


@pytest.mark.parametrize(("initial", "states"), [("STOPPED", ("STOPPED", [])), ("PAUSED", ("PAUSED", ["PAUSED"] * 2))])
def test_herder_creates_a_connector_in_an_initial_state(initial: str, states: object) -> None:
    group = Group()
    group.do(group.herder.create("snk", SINK, initial))
    group.settle()
    assert group.states("snk") == states
    assert not group.running


def test_herder_refuses_a_second_connector_of_a_name_and_one_above_the_limit() -> None:
    group = Group()
    for name in ("a", "b", "c"):
        group.do(group.herder.create(name, SINK))
    with pytest.raises(RequestError, match="Connector a already exists") as refused:
        group.herder.create("a", SINK)
    assert refused.value.status == 409
    with pytest.raises(RequestError, match=r"max\.connectors is 3"):
        group.herder.put("d", SINK)


@pytest.mark.parametrize("name", ["", "  ", "a/b", "a\n", "x" * 250])
def test_herder_refuses_an_invalid_name(name: str) -> None:
    with pytest.raises(RequestError) as refused:
        Group().herder.create(name, SINK)
    assert refused.value.status == 400


def test_herder_refuses_an_invalid_configuration_with_all_errors() -> None:
    with pytest.raises(RequestError, match=r"following 1 error\(s\):\nInvalid value x for tasks\.max"):
        Group().herder.create("snk", {**SINK, "tasks.max": "x"})


def test_herder_patches_and_removes_settings() -> None:
    group = Group()
    group.do(group.herder.create("snk", {**SINK, "file": "x"}))
    group.settle()
    answer = group.do(group.herder.patch("snk", {"tasks.max": "1", "file": None}))
    assert answer["config"] == {"connector.class": "Sink", "tasks.max": "1", "name": "snk"}
    assert len(answer["tasks"]) == 2
    group.settle()
    assert group.states("snk") == ("RUNNING", ["RUNNING"])
    assert 1 not in group.state.task_statuses["snk"]


def test_stopped_connector_has_no_tasks_and_starts_again() -> None:
    group = Group()
    group.do(group.herder.create("snk", SINK))
    group.settle()
    with pytest.raises(RequestError, match="STOPPED state"):
        group.herder.check_stopped("snk")
    group.do(group.herder.set_target_state("snk", TargetState.STOPPED))
    with pytest.raises(RequestError, match="is stopping") as refused:
        group.herder.check_stopped("snk")
    assert refused.value.status == 409
    group.settle()
    group.herder.check_stopped("snk")
    assert group.states("snk") == ("STOPPED", [])
    group.do(group.herder.set_target_state("snk", TargetState.STARTED))
    group.settle()
    assert group.states("snk") == ("RUNNING", ["RUNNING", "RUNNING"])


def test_failed_query_stays_failed_until_a_restart() -> None:
    group = Group()
    group.do(group.herder.create("snk", SINK))
    group.settle()
    run = group.running.pop("snk").run
    group.write(group.supervisor.failed(group.state, "snk", run, "boom", is_planned=True))
    group.settle()
    assert group.states("snk") == ("RUNNING", ["FAILED", "FAILED"])
    assert group.herder.status("snk")["tasks"][0]["trace"] == "boom"
    assert not group.running
    status = group.do(group.herder.restart("snk", include_tasks=True, only_failed=True))
    assert [status["connector"]["state"], *(task["state"] for task in status["tasks"])] == [
        "RUNNING",
        "RESTARTING",
        "RESTARTING",
    ]
    group.settle()
    assert group.states("snk") == ("RUNNING", ["RUNNING", "RUNNING"])


def test_restart_of_failed_parts_changes_nothing_if_none_has_failed() -> None:
    group = Group()
    group.do(group.herder.create("snk", SINK))
    group.settle()
    assert group.herder.restart("snk", include_tasks=True, only_failed=True).records == ()


def test_connector_that_cannot_be_planned_fails_until_its_configuration_changes() -> None:
    group = Group()
    group.do(group.herder.create("snk", {**SINK, "broken": "yes"}))
    group.settle()
    assert group.states("snk") == ("FAILED", [])
    group.do(group.herder.patch("snk", {"broken": None}))
    group.settle()
    assert group.states("snk") == ("RUNNING", ["RUNNING", "RUNNING"])


def test_deleted_connector_leaves_nothing_and_starts_anew() -> None:
    group = Group()
    group.do(group.herder.create("snk", SINK, "STOPPED"))
    group.settle()
    group.do(group.herder.delete("snk"))
    group.settle()
    assert not group.state.connectors
    assert not group.state.connector_statuses
    group.do(group.herder.create("snk", SINK))
    group.settle()
    assert group.states("snk") == ("RUNNING", ["RUNNING", "RUNNING"])


def test_next_leader_starts_what_its_predecessor_ran() -> None:
    group = Group()
    group.do(group.herder.create("snk", SINK))
    group.settle()
    group.lead(2)
    group.settle()
    assert group.running["snk"].name == "snk"
    assert group.state.connector_statuses["snk"].generation == 2


def test_state_of_compacted_topics_is_the_same() -> None:
    group = Group()
    group.do(group.herder.create("a-1", SINK))
    group.settle()
    group.do(group.herder.patch("a-1", {"tasks.max": "1"}))
    group.settle()
    last = {(record.store, record.key): (record, offset) for record, offset in group.log}
    again = GroupState()
    for record, offset in sorted(last.values(), key=lambda each: each[1]):
        if record.value is not None:
            again.replay(record, offset)
    assert again.connectors["a-1"].tasks == group.state.connectors["a-1"].tasks
    assert again.connector_statuses == group.state.connector_statuses
    assert again.task_statuses == group.state.task_statuses


def test_target_state_stopped_is_paused_for_old_readers() -> None:
    group = Group()
    group.do(group.herder.create("snk", SINK))
    (record, _) = group.herder.set_target_state("snk", TargetState.STOPPED).records
    assert record.value == {"state": "PAUSED", "state.v2": "STOPPED"}


@pytest.mark.parametrize(
    ("key", "value"),
    [(None, b"{}"), (b"connector-a", b"nonsense"), (b"connector-a", b"[]"), (b"\xff", b"{}")],
)
def test_unreadable_records_are_skipped(key: bytes | None, value: bytes) -> None:
    assert decoded(Store.CONFIG, key, value) is None


@pytest.mark.parametrize(
    ("key", "value"),
    [("connector-a", {}), ("target-state-a", {"state": "X"}), ("task-a-0", {}), ("commit-a", {"tasks": 2}), ("z", {})],
)
def test_records_without_sense_change_nothing(key: str, value: dict[str, Any]) -> None:
    state = GroupState()
    state.replay(Record(Store.CONFIG, key, value), 0)
    assert state == GroupState()


ACTIONS = ("create", "delete", "patch", "pause", "stop", "resume", "restart", "step", "execute", "fail", "lead")


def acts(text: str) -> list[tuple[str, str]]:
    return [(action, "a") for action in text.split()]


@settings(max_examples=examples(150), deadline=None)
@example(acts("create step execute stop resume"))
@example(acts("create step execute delete create"))
@given(st.lists(st.tuples(st.sampled_from(ACTIONS), st.sampled_from("ab")), max_size=40))
def test_any_history_ends_in_the_target_states_with_one_run_each(history: list[tuple[str, str]]) -> None:
    group = Group()
    epoch = 1
    targets = {"pause": TargetState.PAUSED, "stop": TargetState.STOPPED, "resume": TargetState.STARTED}
    for action, name in history:
        try:
            if action == "create":
                group.do(group.herder.create(name, SINK))
            elif action == "delete":
                group.do(group.herder.delete(name))
            elif action == "patch":
                group.do(group.herder.patch(name, {"tasks.max": str(1 + len(group.log) % 3)}))
            elif action in targets:
                group.do(group.herder.set_target_state(name, targets[action]))
            elif action == "restart":
                group.do(group.herder.restart(name, include_tasks=True, only_failed=False))
            elif action == "step":
                group.step()
            elif action == "lead":
                epoch += 1
                group.lead(epoch)
            elif action == "execute" and group.pending:
                group.execute()
            elif action == "fail" and name in group.running and not _is_stopping(group, name):
                run = group.running.pop(name).run
                group.write(group.supervisor.failed(group.state, name, run, "boom", is_planned=True))
        except RequestError:
            continue
    group.settle()
    for name in group.state.connectors:
        if "FAILED" in group.states(name)[1]:
            group.do(group.herder.restart(name, include_tasks=True, only_failed=True))
    group.settle()
    assert set(group.running) <= set(group.state.connectors)
    for name in group.state.connectors:
        target = group.state.target_state(name)
        expected = State.RUNNING if target is TargetState.STARTED else State(target.value)
        connector, tasks = group.states(name)
        assert connector == expected
        assert set(tasks) <= {expected.value}
        assert (name in group.running) == (target is TargetState.STARTED)
        assert len(tasks) == (0 if target is TargetState.STOPPED else len(group.state.connectors[name].tasks))


def _is_stopping(group: Group, name: str) -> bool:
    return any(isinstance(command, StopConnector) and command.name == name for command in group.pending)
