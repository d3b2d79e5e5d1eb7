"""Why a cluster refuses a client, by each client and each reason: in the client's error, and in the node's log."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import pytest
from acknowledged import wait_for
from certificates import Authority
from compat.refused_clients import CLIENTS, TOPIC, Access, Aio, RefusedClient, Sdk
from token_issuer import AUDIENCE, ISSUER, Issuer, serving

from tidelog import AdminClient, NewTopic
from tidelog.admin import (
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialDeletion,
    UserScramCredentialUpsertion,
)
from tidelog.testing import LocalCluster

pytestmark = [
    pytest.mark.compat,
    # aiokafka leaves a socket open when it cannot connect.
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]
DEADLINE_S = 30
NEW_CERTIFICATE = "uses the new certificate of CN=node-1"
PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule required"
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule required"
OAUTH = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required"
SERVER = f'{PLAIN} username="server" password="s-secret" user_server="s-secret" user_admin="a-secret";'
PASSWORD = "wonderland"


@dataclass
class Logins:
    """A node that accepts passwords and tokens over TLS, on both doors; sessions end after two seconds."""

    cluster: LocalCluster
    issuer: Issuer
    ca: str
    token_file: Path

    @property
    def log(self) -> str:
        return self.cluster.nodes[1].log_path.read_text()

    def access(self, **settings: str) -> Access:
        given = {"security.protocol": "sasl_ssl", "ssl.ca.location": self.ca}
        return Access(
            self.cluster, given | {key.replace("_", "."): value for key, value in settings.items()}, self.token_file
        )

    def scram(self, user: str, password: str = PASSWORD) -> Access:
        return self.access(sasl_mechanisms="SCRAM-SHA-512", sasl_username=user, sasl_password=password)

    def token(self, **claims: object) -> Access:
        return self.access(sasl_mechanisms="OAUTHBEARER", token=self.issuer.token(time.time(), **claims))

    def admin(self) -> AdminClient:
        plain = self.access(sasl_mechanisms="PLAIN", sasl_username="admin", sasl_password="a-secret")
        return AdminClient({"bootstrap.servers": self.cluster.bootstrap_servers, **plain.librdkafka()})

    def create_user(self, name: str) -> None:
        info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096)
        with self.admin() as admin:
            changes = [UserScramCredentialUpsertion(name, info, PASSWORD.encode())]
            admin.alter_user_scram_credentials(changes)[name].result(DEADLINE_S)

    def delete_user(self, name: str) -> None:
        with self.admin() as admin:
            changes = [UserScramCredentialDeletion(name, ScramMechanism.SCRAM_SHA_512)]
            admin.alter_user_scram_credentials(changes)[name].result(DEADLINE_S)


@pytest.fixture(scope="module")
def logins(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Logins]:
    folder, authority, issuer = tmp_path_factory.mktemp("logins"), Authority(), Issuer()
    ca = str(authority.write_pem(folder / "ca.pem"))
    token_file = folder / "token.jwt"
    with serving() as endpoints, _permitted_for_java(token_file):
        endpoints.answers["/jwks"] = (200, issuer.key_set())
        config = {
            "listener.security.protocol.map": "GRPC:GRPC_SASL_SSL,GRPC_SASL_SSL:GRPC_SASL_SSL,PLAINTEXT:SASL_SSL",
            "controller.listener.names": "GRPC_SASL_SSL",
            "inter.broker.listener.name": "GRPC",
            "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-512,OAUTHBEARER",
            "listener.name.grpc_sasl_ssl.sasl.enabled.mechanisms": "PLAIN",
            "sasl.mechanism.controller.protocol": "PLAIN",
            "sasl.mechanism.inter.broker.protocol": "PLAIN",
            "listener.name.grpc_sasl_ssl.plain.sasl.jaas.config": SERVER,
            **{f"listener.name.{name}.plain.sasl.jaas.config": SERVER for name in ("grpc", "plaintext")},
            **{f"listener.name.{name}.scram-sha-512.sasl.jaas.config": f"{SCRAM};" for name in ("grpc", "plaintext")},
            **{f"listener.name.{name}.oauthbearer.sasl.jaas.config": f"{OAUTH};" for name in ("grpc", "plaintext")},
            "sasl.oauthbearer.jwks.endpoint.url": endpoints.url("/jwks"),
            "sasl.oauthbearer.expected.issuer": ISSUER,
            "sasl.oauthbearer.expected.audience": AUDIENCE,
            "connections.max.reauth.ms": "2000",
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(authority.issue("node").write_pem(folder / "node.pem")),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": ca,
        }
        own = {
            "security.protocol": "SASL_SSL",
            "ssl.ca.location": ca,
            "sasl.mechanisms": "PLAIN",
            "sasl.username": "admin",
            "sasl.password": "a-secret",
        }
        with LocalCluster(1, 1, config=config, client_config=own) as cluster:
            made = Logins(cluster, issuer, ca, token_file)
            made.create_user("alice")
            with made.admin() as admin:
                admin.create_topics([NewTopic(TOPIC, 1, 1)])[TOPIC].result(DEADLINE_S)
            yield made


@contextmanager
def _permitted_for_java(file: Path) -> Iterator[None]:
    """Let Java read tokens from a file."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JDK_JAVA_OPTIONS", f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={file.as_uri()}")
        yield


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    """A node that requires certificates of clients, on both doors; gRPC itself logs failed handshakes."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GRPC_VERBOSITY", "INFO")
        with LocalCluster(1, 1, tmp_path_factory.mktemp("tls") / "data", security="ssl") as cluster:
            yield cluster


Expected = Mapping[str, str]
"""The patterns of the clients' errors by the clients' names; that of "" is for those without one."""


def check_refusal(
    client: RefusedClient, access: Access, expected: Expected, log_of: Callable[[], str], logged: str
) -> str:
    """Let a client try until its error matches the pattern for it, and the log the pattern of the reason.

    The node limits the rate of such lines; kafka-python does not always read the answer before the end of the
    connection. Return the client's last error.
    """
    before, ends = len(log_of()), time.monotonic() + DEADLINE_S
    pattern = expected.get(client.name, expected[""])
    while True:
        said, log = client.refusal(access), log_of()[before:]
        if re.search(pattern, said) and re.search(logged, log):
            return said
        assert time.monotonic() < ends, f"no {pattern!r} in {said}\nor no {logged!r} in the log:\n{log[-2_000:]}"


EACH = pytest.mark.parametrize("client", CLIENTS, ids=lambda each: each.name)
INVALID = "invalid credentials with SASL mechanism SCRAM-SHA-512"
# A record of Java's producer times out while it tries to log in again; the refusal may be in its log alone.
REVOKED = {"java": f"{INVALID}|has passed since batch creation"}
TOKEN = {
    "": r'\{"status":"invalid_token"\}',
    "tidelog": r'_AUTHENTICATION: .* failed with SASL mechanism OAUTHBEARER: \{"status":"invalid_token"\}',
    # aiokafka does not read the refusal.
    "aiokafka": "Connection at .* closed",
}


@EACH
def test_wrong_password_is_named(logins: Logins, client: RefusedClient) -> None:
    access = logins.scram("alice", "canary")
    said = check_refusal(client, access, {"": INVALID}, lambda: logins.log, "wrong password of user 'alice'")
    assert "canary" not in said + logins.log


@EACH
def test_expired_token_is_named(logins: Logins, client: RefusedClient) -> None:
    access = logins.token(exp=int(time.time()) - 60, iat=0)
    check_refusal(client, access, TOKEN, lambda: logins.log, r"OAUTHBEARER.*: the token expired \d+ s ago")


@EACH
def test_wrong_issuer_is_named(logins: Logins, client: RefusedClient) -> None:
    logged = f"OAUTHBEARER.*: Invalid issuer; sasl.oauthbearer.expected.issuer is {ISSUER}"
    check_refusal(client, logins.token(iss="https://evil.example"), TOKEN, lambda: logins.log, logged)


@EACH
def test_revoked_user_is_named_while_connected(logins: Logins, client: RefusedClient) -> None:
    user = f"revoked-{client.name}"
    logins.create_user(user)
    before = len(logins.log)
    said = client.loses(logins.scram(user), lambda: logins.delete_user(user))
    assert re.search(REVOKED.get(client.name, INVALID), said), f"{said}\n{logins.log[before:][-2_000:]}"
    gone = f"there is no user '{user}'"
    wait_for(lambda: gone in logins.log[before:], f"{gone!r} in the log", DEADLINE_S)


NO_CERTIFICATE = {
    "": "_SSL: .*may require a certificate of the client",
    "confluent-kafka": "tlsv13 alert certificate required",
    "kafka-python": "tlsv13 alert certificate required",
    "aiokafka": "Connection at .* closed",
    "java": "Failed to process post-handshake messages",
}
EXPIRED = NO_CERTIFICATE | {
    "confluent-kafka": "alert certificate expired",
    "kafka-python": "alert certificate expired",
}
OTHER_HOST = {
    "": "_SSL: .*certificate is not valid for the address",
    "confluent-kafka": "certificate verify failed",
    "kafka-python": "certificate is not valid for '127.0.0.1'",
    "aiokafka": "certificate is not valid for '127.0.0.1'",
    "java": "SSL handshake failed",
}

REFUSED_BY_CLIENT = (
    "handshake failed: .*(certificate|unknown)|client ended the TLS handshake|ALERT_(.*CERTIFICATE|UNKNOWN_CA)"
)


@EACH
@pytest.mark.parametrize(
    ("kind", "expected", "logged"),
    [
        ("none", NO_CERTIFICATE, "peer did not return a certificate|PEER_DID_NOT_RETURN_A_CERTIFICATE"),
        ("expired", EXPIRED, "certificate has expired"),
    ],
)
def test_missing_and_expired_certificates_are_named(
    certificates: LocalCluster,
    client: RefusedClient,
    kind: str,
    expected: dict[str, str],
    logged: str,
    tmp_path: Path,
) -> None:
    authority = Authority.open(certificates.security.folder / "ca-key.pem")
    settings = {"security.protocol": "ssl", "ssl.ca.location": str(certificates.security.folder / "ca.pem")}
    if kind == "expired":
        issued = authority.issue("admin", hosts=(), valid_for=timedelta(days=-1))
        store = str(issued.write_pem(tmp_path / "client.pem"))
        settings |= {"ssl.certificate.location": store, "ssl.key.location": store}
    check_refusal(client, Access(certificates, settings), expected, certificates.nodes[1].log_path.read_text, logged)


@EACH
def test_certificate_of_another_host_is_named(elsewhere: LocalCluster, client: RefusedClient) -> None:
    access = Access(elsewhere, elsewhere.security.client_settings())
    # gRPC compares the name after the handshake, and closes the connection: the node sees no fault.
    logged = "" if client.name in (Sdk.name, Aio.name) else REFUSED_BY_CLIENT
    check_refusal(client, access, OTHER_HOST, elsewhere.nodes[1].log_path.read_text, logged)


@pytest.fixture(scope="module")
def elsewhere(certificates: LocalCluster) -> LocalCluster:
    """The same node, with a certificate for another host."""
    authority = Authority.open(certificates.security.folder / "ca-key.pem")
    log = certificates.nodes[1].log_path
    before = log.read_text().count(NEW_CERTIFICATE)
    issued = authority.issue("node-1", hosts=["elsewhere.example"])
    issued.write_pem(certificates.security.folder / "node-1.pem")
    wait_for(lambda: log.read_text().count(NEW_CERTIFICATE) == before + 2, "both listeners to use it", DEADLINE_S)
    return certificates
