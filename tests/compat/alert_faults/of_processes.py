"""Faults of controllers and nodes as processes: killed, paused, busy, or taken for members of another cluster."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Final

import confluent_kafka
from acknowledged import wait_for
from compat.alert_faults.deployment import WAIT_S, Deployment, repeated

from tidelog.testing import LocalCluster
from tidelog.testing.process import ProcessHandle

_STOPPED_S: Final = 0.9


@contextlib.contextmanager
def killed_node(deployment: Deployment) -> Iterator[None]:
    """Kill one of two nodes, which replicate a topic with min.insync.replicas=2."""
    _create_replicated(deployment)
    deployment.cluster.nodes[2].kill()
    yield


@contextlib.contextmanager
def killed_nodes(deployment: Deployment) -> Iterator[None]:
    """Kill all nodes, one after the other."""
    _create_replicated(deployment)
    for node in deployment.cluster.nodes.values():
        node.kill()
    yield


@contextlib.contextmanager
def killed_quorum(deployment: Deployment) -> Iterator[None]:
    """Kill two of three controllers."""
    for controller in [*deployment.cluster.controllers.values()][:2]:
        controller.kill()
    yield


@contextlib.contextmanager
def second_quorum(deployment: Deployment) -> Iterator[None]:
    """Scrape another cluster's controller under the label of this one.

    Prometheus cannot see two controllers of one quorum that lead. A leader without a majority resigns after
    controller.quorum.election.timeout.ms, and only then do the others elect a new one; a leader that is paused
    meanwhile does not answer Prometheus.
    """
    with LocalCluster(1, 0, metrics=True) as other:
        address = other.controllers[1].metrics_address
        assert address is not None
        deployment.scrape_also("controller", address)
        try:
            yield
        finally:
            deployment.scrape_no_more("controller")


@contextlib.contextmanager
def paused_voter(deployment: Deployment) -> Iterator[None]:
    """Pause a controller that does not lead."""
    _follower(deployment).pause()
    yield


@contextlib.contextmanager
def dead_voter_of_a_new_leader(deployment: Deployment) -> Iterator[None]:
    """Kill a controller, and let another one lead that has never heard from it."""
    dead = _follower(deployment)
    dead.kill()
    leader = deployment.cluster.controllers[_leader(deployment)]
    leader.kill()
    leader.start()
    wait_for(lambda: deployment.cluster.controller_leader() is not None, "a leader", WAIT_S)
    yield


@contextlib.contextmanager
def leaders_that_die(deployment: Deployment) -> Iterator[None]:
    """Kill the leading controller again and again."""

    def next_leader() -> None:
        leader = deployment.cluster.controllers[_leader(deployment)]
        leader.kill()
        leader.start()

    with repeated(next_leader, 0.5):
        yield


@contextlib.contextmanager
def busy_node(deployment: Deployment) -> Iterator[None]:
    """Send a node as many requests as it can take, each with one record."""
    deployment.create_topic("busy", 1, 1)
    settings = {**deployment.cluster.kafka_client_settings(), "linger.ms": 0, "batch.num.messages": 1, "acks": 1}
    producer = confluent_kafka.Producer({**settings, "queue.buffering.max.messages": 10_000})

    def produce() -> None:
        with contextlib.suppress(BufferError):
            for _ in range(2_000):
                producer.produce("busy", b"x")
        producer.poll(0)

    with repeated(produce, 0.02):
        yield
    producer.purge()
    producer.flush(WAIT_S)


@contextlib.contextmanager
def stuttering_node(deployment: Deployment) -> Iterator[None]:
    """Take the processor from a node for most of each second or two, as a machine that swaps does."""
    node = deployment.cluster.nodes[1]
    is_paused = False

    def toggle() -> None:
        nonlocal is_paused
        is_paused = not is_paused
        if is_paused:
            node.pause()
        else:
            node.resume()

    with repeated(toggle, _STOPPED_S):
        yield
    node.resume()


def _create_replicated(deployment: Deployment) -> None:
    with deployment.admin() as admin:
        if "replicated" in admin.list_topics(timeout=WAIT_S).topics:
            return
    deployment.create_topic("replicated", 2, 2, min_insync_replicas="2")


def _leader(deployment: Deployment) -> int:
    found: list[int] = []

    def is_known() -> bool:
        leader = deployment.cluster.controller_leader()
        found.extend([leader] if leader is not None else [])
        return bool(found)

    wait_for(is_known, "a leader of the quorum", WAIT_S)
    return found[-1]


def _follower(deployment: Deployment) -> ProcessHandle:
    leader = _leader(deployment)
    return next(each for each in deployment.cluster.controllers.values() if each.id != leader)
