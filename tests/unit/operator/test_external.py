"""Listeners for clients outside: Services, the addresses that nodes advertise, and the pods that must restart."""

from __future__ import annotations

import json
from typing import Any

import javaproperties
import kubernetes_validate
import pytest
import yaml
from operated_cluster import objects, one, resource

from tidelog_operator import external
from tidelog_operator.manifests import pod_labels
from tidelog_operator.resources import NODE, ClusterSpec, ExternalSpec, parse_cluster
from tidelog_operator.sources import DEFAULT_FOLDER

NODE_PORT = {"type": "NodePort"}
BALANCED = {"type": "LoadBalancer"}
HOSTS = {"advertisedHost": "{node}.example.com", "annotations": {"dns/hostname": "{node}.example.com"}}


def spec(**outside: Any) -> tuple[ClusterSpec, ExternalSpec]:
    found = parse_cluster(resource(external=outside))
    assert found.external is not None
    return found, found.external


def services(ids: range = range(101, 104), **outside: Any) -> list[dict[str, Any]]:
    cluster, found = spec(**outside)
    return external.services(cluster, found, ids, pod_labels(cluster, NODE))


def assigned(service: dict[str, Any], number: int, address: dict[str, str] | None = None) -> dict[str, Any]:
    """Return a Service as the API server has it."""
    copied = json.loads(json.dumps(service))
    for port in copied["spec"]["ports"]:
        port["nodePort"] = (31000 if port["name"] == "grpc-external" else 30000) + number
    copied["status"] = {"loadBalancer": {"ingress": [address]} if address else {}}
    return copied


@pytest.mark.parametrize("outside", [NODE_PORT, BALANCED, {**NODE_PORT, **HOSTS}])
@pytest.mark.parametrize("security", [{}, {"security": {}}])
def test_objects_fit_the_schemas_of_kubernetes(outside: dict[str, Any], security: dict[str, Any]) -> None:
    for each in [*objects(external=outside, **security), *services(**outside)]:
        kubernetes_validate.validate(each, "1.31", strict=True)


def test_open_cluster_has_the_listeners_of_the_overlay() -> None:
    overlay = DEFAULT_FOLDER / "overlays" / "external"
    text = one(objects("tidelog", external=NODE_PORT), "ConfigMap", "tidelog-node")["data"]["server.properties"]
    mine, theirs = javaproperties.loads(text), javaproperties.loads((overlay / "node.properties").read_text())
    for key in ("listeners", "listener.security.protocol.map", "inter.broker.listener.name"):
        assert mine[key] == theirs[key]
    template = one(objects("tidelog", external=NODE_PORT), "StatefulSet", "tidelog-node")["spec"]["template"]
    operations = yaml.safe_load((overlay / "node.yaml").read_text())
    (container,) = template["spec"]["containers"]
    for operation in operations:
        if operation["op"] == "add":
            assert operation["value"] in container[operation["path"].split("/")[-2]]


def test_secured_cluster_asks_clients_outside_for_logins_too() -> None:
    text = one(objects(external=NODE_PORT, security={}), "ConfigMap", "orders-node")["data"]["server.properties"]
    protocols = javaproperties.loads(text)["listener.security.protocol.map"].split(",")
    assert {"GRPC_EXTERNAL:GRPC_SASL_SSL", "EXTERNAL:SASL_SSL", "INTERNAL:SSL"} <= set(protocols)
    assert services(**NODE_PORT)[1]["spec"]["ports"][0]["appProtocol"] == "kubernetes.io/h2c"


def test_every_node_has_a_service_that_leads_to_it_alone() -> None:
    bootstrap, *nodes = services(**NODE_PORT)
    assert [each["metadata"]["name"] for each in nodes] == [f"orders-node-{n}-external" for n in (101, 102, 103)]
    assert bootstrap["metadata"]["name"] == "orders-node-external"
    pods = [each["spec"]["selector"]["statefulset.kubernetes.io/pod-name"] for each in nodes]
    assert pods == ["orders-node-101", "orders-node-102", "orders-node-103"]
    assert "statefulset.kubernetes.io/pod-name" not in bootstrap["spec"]["selector"]
    # A machine without the node has no use for its packets.
    assert {each["spec"]["externalTrafficPolicy"] for each in nodes} == {"Local"}


def test_more_nodes_restart_no_pod() -> None:
    templates = [
        one(objects(replicas=n, external=NODE_PORT), "StatefulSet", "orders-node")["spec"]["template"] for n in (3, 4)
    ]
    assert templates[0] == templates[1]


@pytest.mark.parametrize(
    ("outside", "address", "argument", "entries"),
    [
        (
            NODE_PORT,
            None,
            "GRPC_EXTERNAL://$(HOST_IP):${dir:/etc/tidelog-external:grpc-port-$(POD_INDEX)}",
            {"grpc-port-101": "31101", "kafka-port-101": "30101"},
        ),
        (
            {**NODE_PORT, **HOSTS},
            None,
            "GRPC_EXTERNAL://${dir:/etc/tidelog-external:grpc-$(POD_INDEX)}",
            {"grpc-101": "101.example.com:31101", "kafka-101": "101.example.com:30101"},
        ),
        (BALANCED, None, "EXTERNAL://${dir:/etc/tidelog-external:kafka-$(POD_INDEX)}", {}),
        (
            BALANCED,
            {"ip": "192.0.2.1"},
            "EXTERNAL://${dir:/etc/tidelog-external:kafka-$(POD_INDEX)}",
            {"grpc-101": "192.0.2.1:9094", "kafka-101": "192.0.2.1:9092"},
        ),
        (
            BALANCED,
            {"hostname": "a.example.com"},
            "EXTERNAL://${dir:/etc/tidelog-external:kafka-$(POD_INDEX)}",
            {"grpc-101": "a.example.com:9094", "kafka-101": "a.example.com:9092"},
        ),
        (
            BALANCED,
            {"ip": "2001:db8::1"},
            "EXTERNAL://${dir:/etc/tidelog-external:kafka-$(POD_INDEX)}",
            {"grpc-101": "[2001:db8::1]:9094", "kafka-101": "[2001:db8::1]:9092"},
        ),
    ],
)
def test_node_advertises_what_kubernetes_has_assigned(
    outside: dict[str, Any], address: dict[str, str] | None, argument: str, entries: dict[str, str]
) -> None:
    template = one(objects(external=outside), "StatefulSet", "orders-node")["spec"]["template"]["spec"]
    (container,) = template["containers"]
    (advertised,) = (each for each in container["args"] if each.startswith("advertised.listeners="))
    assert argument in advertised.removeprefix("advertised.listeners=").split(",")
    _, service = services(range(101, 102), **outside)
    _, found = spec(**outside)
    assert external.node_addresses(found, {101: assigned(service, 101, address)}) == entries
    assert external.without_address(found, [101], entries) == ([] if entries else [101])


def test_bootstrap_is_at_the_machines_or_at_its_load_balancer() -> None:
    def servers(outside: dict[str, Any], address: dict[str, str] | None = None) -> dict[str, str]:
        service = assigned(services(**outside)[0], 9, address)
        return external.bootstrap_servers(spec(**outside)[1], service, ["192.0.2.2", "192.0.2.1", "192.0.2.2"])

    assert servers(NODE_PORT)["externalBootstrapServers"] == "192.0.2.1:31009,192.0.2.2:31009"
    assert servers({**NODE_PORT, **HOSTS})["externalKafkaBootstrapServers"] == "bootstrap.example.com:30009"
    assert servers(BALANCED, {"ip": "192.0.2.9"})["externalKafkaBootstrapServers"] == "192.0.2.9:9092"
    assert servers(BALANCED) == {}


def test_annotations_and_options_of_load_balancers_reach_the_services() -> None:
    options = {"loadBalancerClass": "example.com/lb", "loadBalancerSourceRanges": ["192.0.2.0/24"]}
    bootstrap, node = services(range(101, 102), **BALANCED, **HOSTS, **options)
    assert bootstrap["metadata"]["annotations"] == {"dns/hostname": "bootstrap.example.com"}
    assert node["metadata"]["annotations"] == {"dns/hostname": "101.example.com"}
    for each in (bootstrap, node):
        assert {key: each["spec"][key] for key in options} == options


def test_changed_address_has_the_time_of_its_change_and_others_keep_theirs() -> None:
    cluster, found = spec(**BALANCED)
    first = {"grpc-101": "a:9094", "kafka-101": "a:9092", "grpc-102": "b:9094", "kafka-102": "b:9092"}
    before = external.config_map(cluster, first, None, "t1", {})
    after = external.config_map(cluster, {**first, "grpc-102": "c:9094"}, before, "t2", {})
    assert external.since(before) == {101: "t1", 102: "t1"}
    assert external.since(after) == {101: "t1", 102: "t2"}
    grown = external.config_map(cluster, {**first, "grpc-103": "d:9094", "kafka-103": "d:9092"}, before, "t3", {})
    assert external.since(grown) == {101: "t1", 102: "t1", 103: "t3"}
    assert external.last_known(found, before, [101, 103]) == {"grpc-101": "a:9094", "kafka-101": "a:9092"}
    # An address of the other type is none: the arguments of the pods differ.
    assert external.last_known(spec(**NODE_PORT)[1], before, [101]) == {}
