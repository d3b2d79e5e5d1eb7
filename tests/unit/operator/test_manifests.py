"""The objects of a cluster: the manifests of the release, with the names, sizes and settings of the resource."""

from __future__ import annotations

import json
from typing import Any

import kubernetes_validate
import pytest
from operated_cluster import SOURCES, objects, one, resource

from tidelog_operator.conditions import Outcome, Refusal, status_of
from tidelog_operator.manifests import INITIAL_CONTROLLERS
from tidelog_operator.resources import parse_cluster
from tidelog_operator.settings import check_replication


@pytest.mark.parametrize("security", [{}, {"security": {}}])
@pytest.mark.parametrize("name", ["tidelog", "orders"])
def test_objects_fit_the_schemas_of_kubernetes(name: str, security: dict[str, Any]) -> None:
    for each in objects(name, **security):
        kubernetes_validate.validate(each, "1.31", strict=True)


def test_cluster_named_as_the_manifests_has_their_names_and_pods() -> None:
    for each in objects("tidelog"):
        if each["kind"] == "ConfigMap":
            continue
        (base,) = (
            o for o in SOURCES.objects if (o["kind"], o["metadata"]["name"]) == (each["kind"], each["metadata"]["name"])
        )
        if each["kind"] == "StatefulSet":
            mine, theirs = (o["spec"]["template"]["spec"]["containers"][0] for o in (each, base))
            assert {k: v for k, v in mine.items() if k not in ("image", "args", "env")} == {
                k: v for k, v in theirs.items() if k not in ("image", "args", "env")
            }


@pytest.mark.parametrize("security", [{}, {"security": {}}])
def test_objects_of_two_clusters_share_neither_names_nor_selectors(security: dict[str, Any]) -> None:
    first, second = ({(o["kind"], o["metadata"]["name"]) for o in objects(n, **security)} for n in ("a", "b"))
    assert not first & second
    for each in objects("orders", **security):
        text = json.dumps(each)
        assert "tidelog-quorum." not in text
        assert "tidelog-node." not in text
        selector = each["spec"].get("selector") if "spec" in each else None
        if selector:
            assert selector.get("matchLabels", selector)["app.kubernetes.io/instance"] == "orders"


def test_pods_have_the_sizes_images_and_settings_of_the_resource() -> None:
    pool = {
        "storage": {"size": "5Gi", "className": "fast"},
        "resources": {"requests": {"cpu": "2"}},
        "config": {"replica.lag.time.max.ms": 20000, "auto.create.topics.enable": False},
        "sharedMachines": True,
    }
    found = objects(nodes=pool)
    spec = one(found, "StatefulSet", "orders-node")["spec"]
    assert spec["updateStrategy"] == {"type": "OnDelete"}
    claim = spec["volumeClaimTemplates"][0]["spec"]
    assert (claim["resources"]["requests"]["storage"], claim["storageClassName"]) == ("5Gi", "fast")
    (container,) = spec["template"]["spec"]["containers"]
    assert (container["image"], container["resources"]) == ("tidelog:9", {"requests": {"cpu": "2"}})
    assert "affinity" not in spec["template"]["spec"]
    text = one(found, "ConfigMap", "orders-node")["data"]["server.properties"].splitlines()
    assert {"replica.lag.time.max.ms=20000", "auto.create.topics.enable=false", "cluster.id=orders"} <= set(text)


def test_changed_setting_changes_the_template_of_its_pods_alone() -> None:
    before, after = objects(), objects(nodes={"config": {"replica.lag.time.max.ms": "20000"}})
    for role, is_same in (("orders-quorum", True), ("orders-node", False)):
        templates = [one(o, "StatefulSet", role)["spec"]["template"] for o in (before, after)]
        assert (templates[0] == templates[1]) == is_same


def test_number_of_nodes_does_not_restart_pods() -> None:
    templates = [one(objects(replicas=n), "StatefulSet", "orders-node")["spec"]["template"] for n in (3, 4)]
    assert templates[0] == templates[1]


def test_later_controllers_do_not_change_the_voters_with_which_the_cluster_began() -> None:
    found = objects(controllers={"replicas": 5}, initial=3)
    text = one(found, "ConfigMap", "orders-quorum")["data"]["server.properties"]
    assert "controller.quorum.voters=1@orders-quorum-1.orders-quorum\\:9093,2@" in text
    assert "4@" not in text
    annotations = one(found, "StatefulSet", "orders-quorum")["metadata"]["annotations"]
    assert annotations[INITIAL_CONTROLLERS] == "3"


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"replica.lag.max.ms": "3"}, r"spec\.nodes\.config: .*unknown configuration .replica\.lag\.max\.ms"),
        ({"listeners": "GRPC://:1"}, "the operator sets listeners itself"),
        ({"ssl.keystore.location": "/x"}, r"the operator sets ssl\.keystore\.location itself"),
        ({"replica.lag.time.max.ms": "long"}, "long"),
        ({"replica.lag.time.max.ms": [3]}, r"has \[3\] for replica\.lag"),
    ],
)
def test_setting_that_the_process_would_refuse_is_refused_before_any_restart(config: Any, message: str) -> None:
    with pytest.raises(Refusal, match=message):
        objects(nodes={"config": config})


def test_fewer_nodes_than_replicas_of_internal_topics_are_refused() -> None:
    with pytest.raises(Refusal, match=r"offsets\.topic\.replication\.factor is 3, but spec\.nodes\.replicas is 1"):
        check_replication(parse_cluster(resource(nodes={"replicas": 1})))
    small = {"offsets.topic.replication.factor": 1, "transaction.state.log.replication.factor": 1}
    spec = resource(nodes={"replicas": 1, "config": small}, controllers={"config": {"default.replication.factor": 1}})
    check_replication(parse_cluster(spec))


def test_condition_keeps_its_time_until_its_status_changes() -> None:
    first = status_of(Outcome(False, "PodsNotReady", "a", {"x": 1}), {}, 1, "t1")
    second = status_of(Outcome(False, "Rolling", "b"), first, 2, "t2")
    third = status_of(Outcome(True, "Ready", "c"), second, 2, "t3")
    assert [s["conditions"][0]["lastTransitionTime"] for s in (first, second, third)] == ["t1", "t1", "t3"]
    assert (third["x"], third["observedGeneration"]) == (1, 2)


@pytest.mark.parametrize("security", [{}, {"security": {}}])
def test_rack_is_a_label_of_the_machine_that_an_init_container_reads(security: dict[str, Any]) -> None:
    found = objects(rack={"topologyKey": "example.com/rack"}, rack_account="operator-rack", **security)
    for each in found:
        kubernetes_validate.validate(each, "1.31", strict=True)
    pod = one(found, "StatefulSet", "orders-node")["spec"]["template"]["spec"]
    (init,) = pod["initContainers"]
    assert (pod["serviceAccountName"], init["image"], init["command"]) == (
        "operator-rack",
        "tidelog:9",
        ["tidelog-rack"],
    )
    assert {"name": "ZONE_LABEL", "value": "example.com/rack"} in init["env"]
    assert "broker.rack=${dir:/etc/tidelog-rack:zone}" in pod["containers"][0]["args"]
    # Only the init container gets a token.
    assert pod["automountServiceAccountToken"] is False
    assert "serviceAccountName" not in one(found, "StatefulSet", "orders-quorum")["spec"]["template"]["spec"]


def test_rack_without_the_right_to_read_it_is_refused() -> None:
    with pytest.raises(Refusal, match=r"rack\.enabled") as refused:
        objects(rack={})
    assert refused.value.reason == "RackNotPermitted"
