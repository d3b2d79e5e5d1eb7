"""The settings of several nodes that run from one file."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog_foundation.config import endpoints
from tidelog_foundation.errors import ConfigError
from tidelog_node.processes.plan import plan_nodes

FILE = {
    "node.id": "7",
    "listeners": "GRPC://:9000,PLAINTEXT://10.0.0.1:9100",
    "log.dirs": "/a,/b",
}


def nothing_exists(_: Path) -> bool:
    return False


def plans(count: int = 2, **changed: str) -> dict[int, dict[str, str]]:
    properties = FILE | {key.replace("_", "."): value for key, value in changed.items()}
    return {p.node_id: dict(p.overrides) for p in plan_nodes(properties, count, "host-1", nothing_exists)}


def test_nodes_have_consecutive_ids_ports_folders_and_the_machine_as_rack() -> None:
    assert plans() == {
        7: {
            "node.id": "7",
            "log.dirs": "/a/node-7,/b/node-7",
            "bootstrap.listeners": "GRPC://:9000,PLAINTEXT://10.0.0.1:9100",
            "listeners": "GRPC://:9001,PLAINTEXT://10.0.0.1:9101",
            "broker.rack": "host-1",
        },
        8: {
            "node.id": "8",
            "log.dirs": "/a/node-8,/b/node-8",
            "bootstrap.listeners": "GRPC://:9000,PLAINTEXT://10.0.0.1:9100",
            "listeners": "GRPC://:9002,PLAINTEXT://10.0.0.1:9102",
            "broker.rack": "host-1",
        },
    }


def test_all_other_addresses_have_ports_of_their_own() -> None:
    found = plans(
        advertised_listeners="PLAINTEXT://example.org:19100,GRPC://example.org:19000",
        metrics_listeners="HTTP://:9404",
        health_listener="[::1]:9500",
        broker_rack="zone-a",
    )[8]
    assert found["advertised.listeners"] == "PLAINTEXT://example.org:19102,GRPC://example.org:19002"
    assert (found["metrics.listeners"], found["health.listener"]) == ("HTTP://:9406", "[::1]:9502")
    assert "broker.rack" not in found, "the rack of the file applies"


def test_settings_keep_the_spelling_of_the_file() -> None:
    properties = {"broker.id": "0", "log.dir": "/a", "listeners": "GRPC://:9000"}
    [plan] = plan_nodes(properties, 1, "host-1", nothing_exists)
    assert (plan.overrides["broker.id"], plan.overrides["log.dir"]) == ("0", "/a/node-0")
    assert not {"node.id", "log.dirs"} & plan.overrides.keys()


@pytest.mark.parametrize(
    ("count", "changed", "text"),
    [
        (0, {}, "--processes 0: must be from 1 to 64"),
        (65, {}, "--processes 65: must be from 1 to 64"),
        (2, {"node_id": "-1"}, "node.id -1: must be an integer of at least 0"),
        (2, {"node_id": ""}, 'missing required configuration "node.id"'),
        (2, {"log_dirs": " "}, 'missing required configuration "log.dirs"'),
        (2, {"listeners": "GRPC://:0"}, "listeners with port 0: with --processes, each address needs a port"),
        (3, {"listeners": "GRPC://:65533"}, "3 processes need the ports up to 65536, above 65535"),
        (3, {"listeners": "GRPC://:9000,SSL://:9003"}, "both need port 9003 for 3 processes: put at least 4 between"),
        (2, {"metrics_listeners": "HTTP://:9102"}, "listeners with port 9100 and metrics.listeners with port 9102"),
        (2, {"health_listener": "h:9001"}, "listeners with port 9000 and health.listener with port 9001 both need"),
        (2, {"bootstrap_listeners": "GRPC://:1"}, "--processes sets bootstrap.listeners, so the file must not have it"),
    ],
)
def test_file_that_does_not_fit_is_refused(count: int, changed: dict[str, str], text: str) -> None:
    with pytest.raises(ConfigError) as refusal:
        plans(count, **changed)
    assert text in refusal.value.message


def test_partitions_of_a_node_that_ran_alone_are_not_forgotten() -> None:
    with pytest.raises(ConfigError, match=r"log\.dirs: /b has the partitions of a node that runs without --processes"):
        plan_nodes(FILE, 2, "host-1", lambda path: path == Path("/b/meta.properties"))


@given(st.integers(1, 64), st.lists(st.integers(1, 65_535), min_size=1, max_size=4, unique=True))
def test_no_two_nodes_share_an_address_but_those_of_the_file(count: int, ports: list[int]) -> None:
    listeners = ",".join(f"L{i}://:{port}" for i, port in enumerate(ports))
    try:
        found = plan_nodes(FILE | {"listeners": listeners}, count, "host-1", nothing_exists)
    except ConfigError:
        spread = sorted(ports)
        is_close = any(b - a <= count for a, b in pairwise(spread))
        assert is_close or spread[-1] + count > 65_535
        return
    own = [x.port for plan in found for x in endpoints.parse_listeners(plan.overrides["listeners"])]
    assert len({*own, *ports}) == len(ports) * (count + 1)
    assert {plan.overrides["bootstrap.listeners"] for plan in found} == {listeners}
