"""``tidelog quota`` and the admin client's operations on client quotas."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from typer.testing import Result

from tidelog import AdminClient, KafkaException
from tidelog.admin import (
    ClientQuotaAlteration,
    ClientQuotaAlterationOp,
    ClientQuotaEntity,
    ClientQuotaFilter,
    ClientQuotaFilterComponent,
)
from tidelog.testing import FakeCluster

ALICE = ClientQuotaEntity({"user": "alice"})
BOTH = ClientQuotaEntity({"client-id": None, "user": "alice"})
ADDRESS = ClientQuotaEntity({"ip": "10.0.0.1"})


@pytest.fixture(autouse=True)
def admin(cluster: FakeCluster) -> Iterator[AdminClient]:
    """Return a client; afterwards there are no quotas."""
    with AdminClient({"bootstrap.servers": cluster.bootstrap_servers}) as client:
        yield client
        for entity, values in described(client).items():
            alter(client, entity, **dict.fromkeys(values))


def alter(admin: AdminClient, entity: ClientQuotaEntity, **values: float | None) -> None:
    ops = [ClientQuotaAlterationOp(key, value) for key, value in values.items()]
    admin.alter_client_quotas([ClientQuotaAlteration(entity, ops)])[entity].result(10)


def described(admin: AdminClient, wanted: ClientQuotaFilter | None = None) -> dict[ClientQuotaEntity, dict[str, float]]:
    return admin.describe_client_quotas(wanted or ClientQuotaFilter.all()).result(10)


def test_admin_alters_and_describes_quotas(admin: AdminClient) -> None:
    alter(admin, ALICE, producer_byte_rate=1_000, request_percentage=12.5)
    alter(admin, BOTH, consumer_byte_rate=5)
    alter(admin, ADDRESS, connection_creation_rate=7)
    users = ClientQuotaFilter.contains([ClientQuotaFilterComponent.of_entity("user", "alice")])
    alone = ClientQuotaFilter.contains_only([ClientQuotaFilterComponent.of_entity_type("user")])
    defaults = ClientQuotaFilter.contains([ClientQuotaFilterComponent.of_default_entity("client-id")])
    assert set(described(admin, users)) == {ALICE, BOTH}
    assert described(admin, alone) == {ALICE: {"producer_byte_rate": 1_000, "request_percentage": 12.5}}
    assert set(described(admin, defaults)) == {BOTH}
    alter(admin, ALICE, producer_byte_rate=None)
    assert described(admin, alone) == {ALICE: {"request_percentage": 12.5}}


def test_admin_is_told_what_is_wrong_with_a_quota(admin: AdminClient) -> None:
    with pytest.raises(KafkaException, match="Quota producer_byte_rate must be greater than 0"):
        alter(admin, ALICE, producer_byte_rate=-1)
    with pytest.raises(ValueError, match="must be one of user, client-id, ip, not 'group'"):
        ClientQuotaEntity({"group": "g"})
    bad = ClientQuotaFilter([ClientQuotaFilterComponent.of_entity_type(kind) for kind in ("ip", "user")])
    with pytest.raises(KafkaException, match="IP filter component should not be used"):
        described(admin, bad)


def test_admin_validates_without_a_change(admin: AdminClient) -> None:
    ops = [ClientQuotaAlterationOp("producer_byte_rate", 5)]
    admin.alter_client_quotas([ClientQuotaAlteration(ALICE, ops)], validate_only=True)[ALICE].result(10)
    assert described(admin) == {}


def test_quotas_are_set_listed_described_and_deleted(run_json: Callable[..., Any], run: Callable[..., Result]) -> None:
    done = run_json("quota", "set", "--user", "alice", "producer_byte_rate=1000", "consumer_byte_rate=2e3")
    assert done["quotas"] == {"producer_byte_rate": 1_000, "consumer_byte_rate": 2_000}
    run_json("quota", "set", "--user", "alice", "--default-client-id", "request_percentage=50")
    run_json("quota", "set", "--ip", "10.0.0.1", "connection_creation_rate=5", "--validate-only")
    rows = run_json("quota", "list")["quotas"]
    assert [(row["user"], row["client_id"], row["quota"], row["value"]) for row in rows] == [
        ("alice", None, "consumer_byte_rate", 2_000),
        ("alice", None, "producer_byte_rate", 1_000),
        ("alice", "<default>", "request_percentage", 50),
    ]
    assert len(run_json("quota", "describe", "--user", "alice", "--strict")["quotas"]) == 2
    assert "alice" in run("quota", "list").stdout
    assert run_json("quota", "delete", "--user", "alice", "consumer_byte_rate", "--yes")["deleted"] == [
        "consumer_byte_rate"
    ]
    assert run("quota", "delete", "--user", "alice", "--yes").stdout == "deleted producer_byte_rate\n"
    assert run("quota", "delete", "--user", "alice", "--yes").stdout == "no quota matches\n"


@pytest.mark.parametrize(
    ("args", "text"),
    [
        (("set", "producer_byte_rate=5"), "--user, --client-id, --ip or a default of one is required"),
        (("set", "--user", "a", "--default-user", "producer_byte_rate=5"), "--user and --default-user exclude"),
        (("set", "--user", "a", "producer_byte_rate"), "expected QUOTA=VALUE"),
        (("set", "--user", "a", "producer_byte_rate=fast"), "'fast' is not a number"),
    ],
)
def test_what_is_missing_or_wrong_is_named(run: Callable[..., Result], args: tuple[str, ...], text: str) -> None:
    result = run("quota", *args)
    assert result.exit_code == 2
    assert text in " ".join(result.stderr.replace("│", " ").split())
