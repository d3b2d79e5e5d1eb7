"""``tidelog group`` and ``consume --group``: what is listed, described, set and deleted."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import Result

from tidelog import Consumer, TopicPartition
from tidelog.testing import FakeCluster
from tidelog_cli.groups.describe import assignment_text


@pytest.fixture(autouse=True)
def topics(cluster: FakeCluster, run: Callable[..., Result]) -> Iterator[None]:
    cluster.create_topic("t", 2)
    cluster.create_topic("u")
    run("produce", "t", "-p", "0", stdin="a\nb\nc\n")
    run("produce", "t", "-p", "1", stdin="d\n")
    yield
    cluster.delete_topic("t")
    cluster.delete_topic("u")
    run("group", "delete", "g", "h", "--yes")


@pytest.fixture
def reset(run_json: Callable[..., Any]) -> Callable[..., dict[str, int]]:
    """Return the new offsets of a reset of the group g, by topic and partition."""

    def invoke(*args: str) -> dict[str, int]:
        document = run_json("group", "reset-offsets", "g", *args)
        assert document["executed"] is ("--execute" in args)
        return {f"{p['topic']}-{p['partition']}": p["new_offset"] for p in document["partitions"]}

    return invoke


Reset = Callable[..., dict[str, int]]


def test_consume_shares_with_a_group_and_commits_what_it_printed(
    run: Callable[..., Result], run_json: Callable[..., Any]
) -> None:
    first = run("consume", "t", "--group", "g", "--from-beginning", "-n", "3")
    assert (first.exit_code, len(first.stdout.splitlines())) == (0, 3), first.output
    rest = run("consume", "t", "--group", "g", "--from-beginning", "-e")
    assert sorted(first.stdout.split() + rest.stdout.split()) == ["a", "b", "c", "d"]
    [described] = run_json("group", "describe", "g")["groups"]
    assert described["state"]["state"] == "Empty"
    assert [(o["partition"], o["current_offset"], o["lag"]) for o in described["offsets"]] == [(0, 3, 0), (1, 1, 0)]
    refused = run("consume", "t", "-g", "g", "-p", "0")
    assert (refused.exit_code, "--group cannot be combined with" in refused.stderr) == (2, True)


def test_describe_shows_members_and_their_lag(
    cluster: FakeCluster, run: Callable[..., Result], run_json: Callable[..., Any]
) -> None:
    config = {"bootstrap.servers": cluster.bootstrap_servers, "group.id": "s", "auto.offset.reset": "earliest"}
    with Consumer({**config, "client.id": "me", "group.instance.id": "one"}) as consumer:
        consumer.subscribe(["t"])
        assert len(consumer.consume(4, 20)) == 4
        consumer.commit(offsets=[TopicPartition("t", 0, 1)], asynchronous=False)
        [described] = run_json("group", "describe", "s")["groups"]
        assert (described["state"]["state"], described["state"]["members"]) == ("Stable", 1)
        [member] = described["members"]
        assert (member["client_id"], member["group_instance_id"], member["assignment"]) == ("me", "one", "t:0,1")
        assert [(o["current_offset"], o["log_end_offset"], o["lag"]) for o in described["offsets"]] == [
            (1, 3, 2),
            (None, 1, None),
        ]
        shown = run("group", "describe", "s", "--members").stdout.splitlines()
        headers = ("GROUP", "CONSUMER ID", "GROUP INSTANCE ID", "HOST", "CLIENT ID", "PARTITIONS", "ASSIGNMENT")
        assert tuple(re.split(r" {2,}", shown[0])) == headers
        assert [row["group"] for row in run_json("group", "list", "--state", "Stable")["groups"]] == ["s"]
        assert run_json("group", "list", "--state", "Empty", "--type", "consumer")["groups"] == []
        active = run("group", "reset-offsets", "s", "--to-latest", "--topic", "t", "--execute", "--yes")
        assert (active.exit_code, active.stdout) == (1, "")
        assert active.stderr.startswith("tidelog: error: offsets are only set while the group is inactive")
        assert run("group", "delete", "s", "-y").stderr.endswith("[NON_EMPTY_GROUP]\n")
        with_member = run("group", "delete-offsets", "s", "-t", "t:0", "-y")
        assert (with_member.exit_code, "GROUP_SUBSCRIBED_TO_TOPIC" in with_member.stderr) == (1, True)


def test_reset_shows_the_plan_and_changes_nothing_without_execute(run: Callable[..., Result], reset: Reset) -> None:
    shown = run("group", "reset-offsets", "g", "--to-earliest", "--topic", "t")
    assert shown.stdout == (
        "GROUP  TOPIC  PARTITION  CURRENT OFFSET  NEW OFFSET\n"
        "g      t              0  -                        0\n"
        "g      t              1  -                        0\n"
    )
    assert shown.stderr == "Nothing was changed. Pass --execute to commit these offsets.\n"
    assert run("group", "describe", "g").stderr.endswith("[GROUP_ID_NOT_FOUND]\n")
    assert reset("--to-latest", "--topic", "t", "--execute", "--yes") == {"t-0": 3, "t-1": 1}
    assert reset("--to-current", "--all-topics") == {"t-0": 3, "t-1": 1}


def test_reset_goes_to_every_kind_of_place(reset: Reset, run: Callable[..., Result]) -> None:
    reset("--to-offset", "2", "--topic", "t", "--execute", "-y")
    assert reset("--to-current", "--topic", "t", "--topic", "u") == {"t-0": 2, "t-1": 1, "u-0": 0}
    assert reset("--shift-by", "-1", "--topic", "t:0") == {"t-0": 1}
    assert reset("--shift-by", "9", "--all-topics") == {"t-0": 3, "t-1": 1}
    assert reset("--to-datetime", "2020-01-01T00:00:00.000", "--topic", "t:0,1") == {"t-0": 0, "t-1": 0}
    assert reset("--to-datetime", "2099-01-01T00:00:00Z", "--all-topics") == {"t-0": 3, "t-1": 1}
    assert reset("--by-duration", "PT1H", "--all-topics") == {"t-0": 0, "t-1": 0}
    warned = run("group", "reset-offsets", "g", "--to-offset", "2", "--topic", "t:1")
    assert "tidelog: warning: offset 2 is above the end of t-1; using 1\n" in warned.stderr
    unknown = run("group", "reset-offsets", "g", "--shift-by", "1", "--topic", "u")
    assert unknown.stderr.startswith("tidelog: error: ")


def test_reset_exports_csv_and_takes_it_back(run: Callable[..., Result], reset: Reset, tmp_path: Path) -> None:
    reset("--to-offset", "1", "--topic", "t", "--execute", "-y")
    exported = run("group", "reset-offsets", "g", "--to-current", "--all-topics", "--export").stdout
    assert exported == "t,0,1\nt,1,1\n"
    file = tmp_path / "offsets.csv"
    file.write_text(exported)
    reset("--to-earliest", "--topic", "t", "--execute", "-y")
    assert reset("--from-file", str(file), "--execute", "-y") == {"t-0": 1, "t-1": 1}
    both = run("group", "reset-offsets", "g", "h", "--to-earliest", "--topic", "t:0", "--export").stdout
    assert both == "g,t,0,0\nh,t,0,0\n"
    file.write_text(both)
    missing = run("group", "reset-offsets", "g", "i", "--from-file", str(file))
    assert (missing.exit_code, "has no offsets of i" in missing.stderr) == (1, True)


@pytest.mark.parametrize(
    ("args", "problem"),
    [
        (("g", "--to-latest"), "Pass one of --topic, --all-topics and --from-file"),
        (("g", "--to-latest", "--topic", "t", "--all-topics"), "Pass one of --topic, --all-topics and --from-file"),
        (("g", "--all-topics"), ", not none."),
        (("g", "--all-topics", "--to-latest", "--shift-by", "1"), "not --to-latest, --shift-by"),
        (("g", "--topic", "t:x", "--to-latest"), '"t:x" is not TOPIC or TOPIC:0,1'),
        (("g", "--all-topics", "--to-latest", "--dry-run", "--execute"), "exclude each other"),
        (("g", "--all-topics", "--to-latest", "--export", "--json"), "exclude each other"),
        (("--all-topics", "--to-latest"), "Pass either the names of groups or --all-groups."),
        (("g", "--all-groups", "--all-topics", "--to-latest"), "Pass either the names of groups or --all-groups."),
        (("g", "--all-topics", "--to-datetime", "soon"), '"soon" is not a time'),
        (("g", "--all-topics", "--by-duration", "soon"), '"soon" is not a duration'),
    ],
)
def test_reset_options_that_do_not_go_together_are_a_usage_error(
    run: Callable[..., Result], args: tuple[str, ...], problem: str
) -> None:
    result = run("group", "reset-offsets", *args)
    assert (result.exit_code, problem in result.stderr) == (2, True), result.output


def test_reset_refuses_partitions_that_are_not_there(run: Callable[..., Result]) -> None:
    for scope in ("nope", "t:0,7"):
        result = run("group", "reset-offsets", "g", "--to-latest", "--topic", scope)
        assert (result.exit_code, result.stderr.rstrip().endswith("[UNKNOWN_TOPIC_OR_PARTITION]")) == (1, True)


def test_groups_and_their_offsets_are_deleted(
    run: Callable[..., Result], run_json: Callable[..., Any], reset: Reset
) -> None:
    reset("--to-latest", "--topic", "t", "--execute", "-y")
    assert run("group", "delete-offsets", "g", "--topic", "t:1", "--yes").stdout == (
        "TOPIC  PARTITION  DELETED\nt              1  yes\n"
    )
    assert reset("--to-current", "--all-topics") == {"t-0": 3}
    deleted = run("group", "delete", "g", "nope", "--yes", "--json")
    gone, nope = json.loads(deleted.stdout)["groups"]
    assert (deleted.exit_code, gone, nope["error"]["name"]) == (
        1,
        {"group": "g", "deleted": True},
        "GROUP_ID_NOT_FOUND",
    )
    assert "g" not in [group["group"] for group in run_json("group", "list")["groups"]]
    assert "g" not in [group["group"] for group in run_json("group", "describe", "--all-groups")["groups"]]


def test_assignments_are_partitions_by_topic() -> None:
    partitions = [TopicPartition("b", 2), TopicPartition("a", 10), TopicPartition("b", 1)]
    assert assignment_text(partitions) == "a:10;b:1,2"
    assert assignment_text([]) == "-"
