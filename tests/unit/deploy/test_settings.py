"""The configuration of each pod, which its process must accept."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tidelog_foundation.config import parse_config
from tidelog_foundation.config.process import load_properties
from tidelog_foundation.errors import ConfigError
from tidelog_node.server.config import NodeConfig
from tidelog_node.server.dynamic_config import DynamicNodeConfig
from tidelog_quorum.server.config import QuorumConfig

CASES = [
    (kustomization, name, config)
    for kustomization in ("base", "overlays/dev", "overlays/external", "overlays/secured")
    for name, config in (("tidelog-quorum", QuorumConfig), ("tidelog-node", NodeConfig))
]


def _load(pod: Any, folder: Path, config: type[Any]) -> Any:
    file = folder / f"{pod.name}.properties"
    file.write_text(pod.properties)
    properties = load_properties(file, pod.overrides)
    # A node also has settings of single listeners.
    return DynamicNodeConfig(properties).current if config is NodeConfig else parse_config(config, properties)


@pytest.mark.parametrize(("kustomization", "name", "config"), CASES)
def test_process_accepts_the_settings_of_its_pods(
    kustomization: str, name: str, config: type[Any], render: Any, pods: Any, tmp_path: Path
) -> None:
    found = pods(render(kustomization), name)
    assert [_load(pod, tmp_path, config).node_id for pod in found] == [pod.ordinal for pod in found]


def test_controllers_of_the_component_have_addresses_that_the_others_reach(
    render: Any, pods: Any, tmp_path: Path
) -> None:
    found = pods(render("base", "components/five-controllers"), "tidelog-quorum")
    configs = [_load(pod, tmp_path, QuorumConfig) for pod in found]
    assert [config.advertised_listeners for config in configs] == [
        f"GRPC://tidelog-quorum-{n}.tidelog-quorum:9093" for n in range(1, 6)
    ]


def test_process_refuses_a_setting_that_it_does_not_know(render: Any, pods: Any, tmp_path: Path) -> None:
    manifests = render("base")
    for manifest in (m for m in manifests if m["kind"] == "ConfigMap"):
        manifest["data"]["server.properties"] += "log.directories=/tmp\n"
    for name, config in (("tidelog-quorum", QuorumConfig), ("tidelog-node", NodeConfig)):
        with pytest.raises(ConfigError, match=r"unknown configuration \"log\.directories\""):
            _load(pods(manifests, name)[0], tmp_path, config)


def test_node_advertises_its_own_name_and_the_ports_it_listens_at(render: Any, pods: Any, tmp_path: Path) -> None:
    manifests = render("base")
    for pod in pods(manifests, "tidelog-node"):
        config = _load(pod, tmp_path, NodeConfig)
        host = f"{pod.name}.tidelog-node.production.svc"
        advertised = [(x.name, x.host, x.port) for x in config.advertised_endpoints({})]
        assert advertised == [("GRPC", host, 9094), ("PLAINTEXT", host, 9092)]
        assert config.grpc_listener.port == 9094
        assert [(x.host, x.port) for x in config.kafka_listeners] == [("0.0.0.0", 9092)]
        assert config.inter_broker_listener.name == "PLAINTEXT"


@pytest.mark.parametrize(("zone", "rack"), [("eu-west-1a", "eu-west-1a"), ("", None)])
def test_node_takes_its_rack_from_the_zone_where_it_is_known(
    zone: str, rack: str | None, render: Any, pods: Any, tmp_path: Path
) -> None:
    for pod in pods(render("base"), "tidelog-node", zone):
        assert _load(pod, tmp_path, NodeConfig).broker_rack == rack


def test_base_survives_the_loss_of_one_node_without_a_word_of_the_topics(
    render: Any, pods: Any, tmp_path: Path
) -> None:
    manifests = render("base")
    (replication_factor,) = {
        _load(pod, tmp_path, QuorumConfig).default_replication_factor for pod in pods(manifests, "tidelog-quorum")
    }
    nodes = [_load(pod, tmp_path, NodeConfig) for pod in pods(manifests, "tidelog-node")]
    assert len(nodes) >= replication_factor == 3
    assert {node.min_insync_replicas for node in nodes} == {replication_factor - 1}


def test_kubelet_waits_longer_than_a_controlled_shutdown_takes(render: Any, pods: Any, tmp_path: Path) -> None:
    manifests = render("base")
    (stateful_set,) = (m for m in manifests if m["kind"] == "StatefulSet" and m["metadata"]["name"] == "tidelog-node")
    grace_ms = stateful_set["spec"]["template"]["spec"]["terminationGracePeriodSeconds"] * 1000
    for pod in pods(manifests, "tidelog-node"):
        assert grace_ms >= 2 * _load(pod, tmp_path, NodeConfig).controlled_shutdown_timeout_ms
