"""TLS Secrets in both layouts, their rotation, and changes of the quorum of a secured cluster."""

from __future__ import annotations

import base64
from typing import Any

import kubernetes_validate
import pytest
from certificates import Authority, Issued
from memory_kubernetes import MemoryKubernetes, SafeClient, reconcile
from operated_cluster import resource

from tidelog_operator.certificates import key_pair, missing_names
from tidelog_operator.conditions import Refusal

AUTHORITY = Authority()
SECURED = resource("orders", security={})
HOSTS = [f"orders-quorum-{number}.orders-quorum" for number in range(1, 6)]
ALL = [*HOSTS, "*.orders-node.shop.svc"]


def issued(*hosts: str) -> Issued:
    return AUTHORITY.issue("orders-quorum", hosts=hosts)


def values(found: Issued, *, is_combined: bool) -> dict[str, str]:
    """Return the values of cert-manager's Secret, with or without its additional output."""
    separate = {"ca.crt": AUTHORITY.pem, "tls.key": found.key_pem(), "tls.crt": found.certificate_pem}
    combined = f"{found.key_pem()}\n{found.certificate_pem}"
    return {**separate, "tls-combined.pem": combined} if is_combined else separate


@pytest.mark.parametrize("is_combined", [True, False])
def test_key_and_chain_are_found_in_both_layouts(is_combined: bool) -> None:
    found = issued(*ALL)
    pair = key_pair(values(found, is_combined=is_combined))
    assert pair is not None
    assert pair.is_combined is is_combined
    assert (pair.key.strip(), pair.chain.strip()) == (found.key_pem().strip(), found.certificate_pem.strip())
    assert pair.combined.startswith("-----BEGIN")
    assert found.key_pem().strip() not in repr(pair)


@pytest.mark.parametrize("missing", ["ca.crt", "tls.key", "tls.crt"])
def test_secret_with_a_part_alone_has_neither_layout(missing: str) -> None:
    assert key_pair({k: v for k, v in values(issued(*ALL), is_combined=False).items() if k != missing}) is None


def test_certificate_is_for_its_names_and_for_those_of_a_wildcard_with_two_labels() -> None:
    pair = key_pair(values(issued("a.example.com", "*.b.example.com", "*.short"), is_combined=False))
    assert pair is not None
    assert missing_names(pair, ["a.example.com", "x.b.example.com", "c.example.com", "x.short"]) == [
        "c.example.com",
        "x.short",
    ]


def put(kubernetes: MemoryKubernetes, role: str, found: Issued, *, is_combined: bool = False) -> None:
    data = {k: base64.b64encode(v.encode()).decode() for k, v in values(found, is_combined=is_combined).items()}
    kubernetes.objects["Secret", f"orders-{role}-tls"] = {"metadata": {"labels": {}}, "data": data}


def secured(*hosts: str, is_combined: bool = False) -> MemoryKubernetes:
    kubernetes = MemoryKubernetes()
    for role in ("quorum", "node"):
        put(kubernetes, role, issued(*hosts), is_combined=is_combined)
    return kubernetes


def mounted(kubernetes: MemoryKubernetes, role: str) -> str:
    volumes = kubernetes.objects["StatefulSet", f"orders-{role}"]["spec"]["template"]["spec"]["volumes"]
    (secret,) = (volume["secret"]["secretName"] for volume in volumes if volume["name"] == "tls")
    return str(secret)


@pytest.mark.parametrize(("is_combined", "secret"), [(True, "orders-node-tls"), (False, "orders-node-keystore")])
def test_pods_mount_a_secret_with_one_file_in_either_layout(is_combined: bool, secret: str) -> None:
    kubernetes = secured(*ALL, is_combined=is_combined)
    reconcile(kubernetes, SECURED)
    assert mounted(kubernetes, "node") == secret
    assert ("Secret", secret) in kubernetes.objects


def test_new_certificate_reaches_the_pods_without_a_restart() -> None:
    kubernetes = secured(*ALL)
    reconcile(kubernetes, SECURED)
    made = kubernetes.objects["Secret", "orders-node-keystore"]
    kubernetes_validate.validate({k: v for k, v in made.items() if k != "status"}, "1.31", strict=True)
    before, template = made["data"], kubernetes.objects["StatefulSet", "orders-node"]["spec"]["template"]
    put(kubernetes, "node", issued(*ALL))
    reconcile(kubernetes, SECURED)
    after = kubernetes.objects["Secret", "orders-node-keystore"]["data"]
    assert before["tls-combined.pem"] != after["tls-combined.pem"]
    assert kubernetes.objects["StatefulSet", "orders-node"]["spec"]["template"] == template


def test_secret_without_a_key_is_named() -> None:
    kubernetes = secured(*ALL)
    del kubernetes.objects["Secret", "orders-node-tls"]["data"]["tls.key"]
    with pytest.raises(Refusal, match="orders-node-tls has no tls-combined") as refused:
        reconcile(kubernetes, SECURED)
    assert refused.value.reason == "SecretNotFound"


def with_controllers(count: int) -> dict[str, Any]:
    return {**SECURED, "spec": {**SECURED["spec"], "controllers": {"replicas": count}}}


def test_controllers_for_which_the_certificate_is_not_are_refused_before_they_start() -> None:
    kubernetes = secured(*HOSTS[:3])
    reconcile(kubernetes, SECURED)
    with pytest.raises(Refusal, match=r"is not for orders-quorum-4\.orders-quorum, orders-quorum-5") as refused:
        reconcile(kubernetes, with_controllers(5))
    assert refused.value.reason == "InvalidCertificate"
    assert kubernetes.objects["StatefulSet", "orders-quorum"]["spec"]["replicas"] == 3


def test_secured_quorum_grows_and_shrinks_by_one_vote_at_a_time() -> None:
    kubernetes, client = secured(*ALL), SafeClient()
    steps = []

    def settle(count: int) -> None:
        for number in range(1, 4):
            kubernetes.start(f"orders-quorum-{number}", "quorum", "2020-01-01T00:00:00Z")
        for number in range(101, 104):
            kubernetes.start(f"orders-node-{number}", "node", "2020-01-01T00:00:00Z")
        for _ in range(9):
            outcome = reconcile(kubernetes, with_controllers(count), client)
            size = kubernetes.objects["StatefulSet", "orders-quorum"]["spec"]["replicas"]
            for number in range(4, 4 + size - 3):
                if ("Pod", f"orders-quorum-{number}") not in kubernetes.objects:
                    kubernetes.start(f"orders-quorum-{number}", "quorum", "2020-01-01T00:00:00Z")
                    client.observers.add(number)
            for number in (4, 5):
                if number - 3 > size - 3:
                    kubernetes.objects.pop(("Pod", f"orders-quorum-{number}"), None)
            if outcome.is_ready:
                return
            steps.append(outcome.message)
        raise AssertionError(steps)

    reconcile(kubernetes, SECURED, client)
    settle(5)
    assert steps == ["orders-quorum gets 5 pods", "controller 4 has a vote", "controller 5 has a vote"]
    assert client.voters == {1, 2, 3, 4, 5}
    steps.clear()
    settle(3)
    assert steps == [
        "controller 5 has no vote any more",
        "controller 4 has no vote any more",
        "orders-quorum gets 3 pods",
    ]
