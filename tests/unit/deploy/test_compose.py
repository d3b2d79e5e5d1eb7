"""``compose.yaml``: its services have few rights, limits and grace periods; its translation to the Docker SDK."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest
from compose_cluster import container_settings, duration_s, load_compose

from tidelog_foundation.config import parse_config
from tidelog_foundation.config.process import load_properties
from tidelog_node.server.config import NodeConfig
from tidelog_quorum.server.config import parse_quorum_config

MINIMAL = """
services:
  a: {image: x, volumes: ["v:/data"], depends_on: {b: {condition: service_healthy}}}
  b: {image: "${IMAGE:-y}"}
volumes: {v: {}}
"""


@pytest.fixture(scope="module")
def document(repository: Path) -> dict[str, Any]:
    return load_compose((repository / "compose.yaml").read_text(), {})


def test_compose_has_three_controllers_and_three_nodes(document: dict[str, Any]) -> None:
    programs = sorted((service["command"][0], name) for name, service in document["services"].items())
    assert programs == [
        *(("tidelog-node", f"node{number}") for number in (1, 2, 3)),
        *(("tidelog-quorum", f"controller{number}") for number in (1, 2, 3)),
    ]


def test_every_service_has_few_rights_and_limits(document: dict[str, Any], repository: Path) -> None:
    for name, service in document["services"].items():
        found = container_settings(service, document["configs"], repository)
        assert found["user"] == "10001:10001", name
        assert found["read_only"] is True, name
        assert found["cap_drop"] == ["ALL"], name
        assert found["security_opt"] == ["no-new-privileges:true"], name
        assert found["mem_limit"], name
        assert found["healthcheck"]["test"] == ["CMD", "tidelog-healthcheck", "/readyz"], name
        assert all(host == "127.0.0.1" for host, _ in found["ports"].values()), name
        assert [volume.split(":")[1] for volume in service["volumes"]] == ["/var/lib/tidelog"], name


def test_image_is_that_of_the_version(document: dict[str, Any], repository: Path) -> None:
    version = tomllib.loads((repository / "pyproject.toml").read_text())["project"]["version"]
    assert {service["image"] for service in document["services"].values()} == {f"tidelog:{version}"}


def test_settings_are_valid_and_the_controlled_shutdown_fits_the_grace_period(
    document: dict[str, Any], repository: Path
) -> None:
    for name, service in document["services"].items():
        program, target, *overrides = service["command"]
        [config] = service["configs"]
        assert config["target"] == target
        properties = load_properties(repository / document["configs"][config["source"]]["file"], overrides[1::2])
        if program == "tidelog-node":
            settings = parse_config(NodeConfig, properties)
            assert 1_000 * duration_s(service["stop_grace_period"]) > settings.controlled_shutdown_timeout_ms, name
        else:
            parse_quorum_config(properties)


def test_variables_are_replaced_by_their_values_or_defaults() -> None:
    assert load_compose(MINIMAL, {})["services"]["b"]["image"] == "y"
    assert load_compose(MINIMAL, {"IMAGE": "z"})["services"]["b"]["image"] == "z"


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ("image: x", "image: x, init: true", "unknown keys of a: init"),
        ("service_healthy", "service_started", "unknown dependency of a"),
        ("v:/data", "./here:/data", "unknown volume of a"),
        ("v: {}", "v: {driver: nfs}", "unknown options of volumes"),
        ("${IMAGE:-y}", "${IMAGE}", "unknown reference"),
        ("services:", "networks: {}\nservices:", "unknown keys of the document: networks"),
    ],
)
def test_translation_refuses_what_it_does_not_know(old: str, new: str, problem: str) -> None:
    assert old in MINIMAL
    with pytest.raises(ValueError, match=problem):
        load_compose(MINIMAL.replace(old, new), {})


@pytest.mark.parametrize(("text", "seconds"), [("90s", 90), ("2m", 120), ("1m30s", 90)])
def test_duration_is_in_seconds(text: str, seconds: int) -> None:
    assert duration_s(text) == seconds


@pytest.mark.parametrize("text", ["", "5", "1h", "5s "])
def test_unknown_duration_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="unknown duration"):
        duration_s(text)
