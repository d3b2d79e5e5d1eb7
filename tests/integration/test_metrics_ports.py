"""The processes of a cluster serve their metrics and health, and tell what a lost node means."""

from __future__ import annotations

from functools import partial

import pytest
from acknowledged import wait_for
from support.scrapes import Scrape, ask

from tidelog.admin import AdminClient, NewTopic
from tidelog.testing import LocalCluster

pytestmark = pytest.mark.costly


def _is_ready(address: str | None) -> bool:
    return ask(f"http://{address}/readyz")[0] == 200


def seen(address: str | None) -> Scrape:
    status, _, text = ask(f"http://{address}/metrics")
    assert status == 200
    return Scrape(text)


def test_lost_node_is_seen_in_the_metrics_of_the_others() -> None:
    with LocalCluster(1, 2, metrics=True) as cluster, AdminClient(cluster.client_settings()) as admin:
        topic = NewTopic("t", 2, 2, config={"min.insync.replicas": "1"})
        admin.create_topics([topic])["t"].result(20)
        controller, node = cluster.controllers[1].metrics_address, cluster.nodes[1].metrics_address
        for address in (controller, node):
            wait_for(partial(_is_ready, address), f"{address} to be ready")
        assert seen(controller).value("tidelog_active_controller") == 1
        assert seen(controller).value("tidelog_brokers", state="active") == 2
        wait_for(lambda: seen(node).value("tidelog_leader_partitions") >= 1, "a leader")
        cluster.nodes[2].kill()
        wait_for(lambda: seen(controller).value("tidelog_brokers", state="fenced") == 1, "the fencing")
        wait_for(lambda: seen(node).value("tidelog_under_replicated_partitions") == 2, "the lost replicas")
        assert seen(controller).value("tidelog_leader_elections_total") >= 1
        assert seen(controller).value("tidelog_unclean_leader_elections_total") == 0
        assert seen(node).value("tidelog_at_min_isr_partitions") == 2
