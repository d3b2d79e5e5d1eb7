"""The users of a secured run: their passwords change, and the run finds a cluster that keeps what it should forget."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest

from tidelog.admin import AdminClient, NewTopic, ScramCredentialInfo, ScramMechanism, UserScramCredentialUpsertion
from tidelog.testing import FakeCluster
from tidelog_chaos.drivers import users
from tidelog_chaos.drivers.users import RunUsers
from tidelog_chaos.workload.library import TidelogLibrary
from tidelog_foundation.authorization.standard import StandardRules
from tidelog_foundation.authorization.standard_authorizer import STANDARD_AUTHORIZER
from tidelog_foundation.sasl.scram import ScramAccount
from tidelog_foundation.sasl.scram_users import ScramUsers

DEADLINE_S = 20
PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule required user_first=f-secret;"
SECURED = {
    "listener.security.protocol.map": "GRPC:GRPC_SASL_PLAINTEXT,PLAINTEXT:PLAINTEXT,CONTROLLER:GRPC",
    "controller.listener.names": "CONTROLLER",
    "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-512",
    "listener.name.grpc.plain.sasl.jaas.config": PLAIN,
    "connection.failed.authentication.delay.ms": "1",
    "connections.max.reauth.ms": "300",
    "authorizer.class.name": STANDARD_AUTHORIZER,
    "super.users": "User:first;User:admin;User:ANONYMOUS",
}


@pytest.fixture
def admin(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, str]]:
    """Run a node with SCRAM, and return the settings of its administrator."""
    monkeypatch.setattr(users, "REAUTHENTICATION_MS", 300)
    monkeypatch.setattr(users, "_TAKES_EFFECT_S", 1.0)
    with FakeCluster(node_config=SECURED) as cluster:
        login = {"bootstrap.servers": cluster.bootstrap_servers, "security.protocol": "sasl_plaintext"}
        first = {"sasl.mechanisms": "PLAIN", "sasl.username": "first", "sasl.password": "f-secret"}
        with AdminClient(login | first) as client:
            client.create_topics([NewTopic("t", 1)])["t"].result(DEADLINE_S)
            info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4_096)
            change = UserScramCredentialUpsertion("admin", info, b"a-secret")
            client.alter_user_scram_credentials([change])["admin"].result(DEADLINE_S)
        yield login | {"sasl.mechanisms": "SCRAM-SHA-512", "sasl.username": "admin", "sasl.password": "a-secret"}


def changed_users(admin: Mapping[str, str], library: TidelogLibrary) -> RunUsers:
    run = RunUsers(admin)
    run.on_change = library.replace_credentials
    run.create()
    assert run.change("new-password") == "a new password of the clients' user"
    return run


def faults(admin: Mapping[str, str]) -> list[str]:
    library = TidelogLibrary()
    run = changed_users(admin, library)
    return run.faults(library, [admin["bootstrap.servers"]], admin)


def test_clients_told_of_a_new_password_go_on_and_the_former_one_ends(admin: dict[str, str]) -> None:
    library = TidelogLibrary()
    run = RunUsers(admin)
    run.on_change = library.replace_credentials
    run.create()
    with library.producer(run.client_settings(admin)) as producer:
        producer.produce("t", b"before")
        assert producer.flush(DEADLINE_S) == 0
        for kind in ("new-password", "same-password", "other-user"):
            assert run.change(kind) is not None
            producer.produce("t", b"after")
            assert producer.flush(DEADLINE_S) == 0
        assert run.faults(library, [admin["bootstrap.servers"]], admin) == []
        producer.produce("t", b"last")
        assert producer.flush(DEADLINE_S) == 0


def _keep_first_credentials(patch: pytest.MonkeyPatch) -> None:
    known: dict[Any, ScramAccount | None] = {}
    find: Callable[..., ScramAccount | None] = ScramUsers.find

    def find_first(self: ScramUsers, mechanism: Any, name: str) -> ScramAccount | None:
        found = find(self, mechanism, name)
        if found is not None:
            known.setdefault(name, found)
        return known.get(name)

    patch.setattr(ScramUsers, "find", find_first)


def _keep_first_acls(patch: pytest.MonkeyPatch) -> None:
    take = StandardRules.set_acls

    def take_more(self: StandardRules, acls: Mapping[Any, Any]) -> None:
        take(self, {**(self._acls or {}), **acls})

    patch.setattr(StandardRules, "set_acls", take_more)


@pytest.mark.parametrize(
    ("plant", "found"),
    [
        pytest.param(_keep_first_credentials, "accepts a former password", id="former passwords stay"),
        pytest.param(_keep_first_acls, "after its ACL was deleted", id="deleted ACLs stay"),
        pytest.param(_keep_first_credentials, "after the user was deleted", id="deleted users stay"),
    ],
)
def test_planted_bug_of_credentials_is_found(
    admin: dict[str, str], monkeypatch: pytest.MonkeyPatch, plant: Callable[[pytest.MonkeyPatch], None], found: str
) -> None:
    plant(monkeypatch)
    assert any(found in fault for fault in faults(admin))
