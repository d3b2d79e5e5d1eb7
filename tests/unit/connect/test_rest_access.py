"""Access to the REST API: users, signatures of workers, origins of browsers, headers, admin listeners, settings."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from connect_in_memory import WorkerInMemory
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.testclient import TestClient

from tidelog_connect.herder.records import leader_record
from tidelog_connect.rest.application import FORWARDED, Access, Part, application
from tidelog_connect.rest.basic_authentication import Users
from tidelog_connect.rest.internal_requests import ALGORITHM, SIGNATURE, new_session_key, signature_headers
from tidelog_connect.rest.response_headers import parse_header_rules
from tidelog_connect.rest.settings import Address
from tidelog_connect.server.settings import worker_settings
from tidelog_foundation.errors import ConfigError

OPEN = Access()
URL = "http://127.0.0.1:28283"
KEY = new_session_key()
ALICE = ("alice", "a:secret")
USERS = Access(Users(dict([ALICE])))
BODY = b'{"level": "DEBUG"}'
CLUSTER_LEVEL = "/admin/loggers/tidelog_connect.access_test?scope=cluster"
BASIC = "org.apache.kafka.connect.rest.basic.auth.extension.BasicAuthSecurityRestExtension"


@contextmanager
def opened(access: Access = OPEN, part: Part = Part.ALL) -> Iterator[TestClient]:
    memory = WorkerInMemory(URL)
    memory.worker.replay(leader_record(URL.removeprefix("http://"), URL, KEY), 1)
    memory.worker.lead(1)

    async def forward(url: str, request: Request, body: bytes) -> Response:
        return JSONResponse({}, 500)

    app = application(memory.worker, memory.worker.loggers, 10_000, forward, access, part)
    with TestClient(app, base_url=URL, raise_server_exceptions=False) as client:
        yield client


def encoded(text: str) -> str:
    return f"Basic {base64.b64encode(text.encode()).decode()}"


def test_users_with_their_passwords_alone_are_served() -> None:
    with opened(USERS) as client:
        assert client.get("/connectors", auth=ALICE).status_code == 200
        assert client.get("/connectors", headers={"Authorization": encoded("alice:a:secret").replace("B", "b", 1)})
        answer = client.get("/connectors")
        assert (answer.status_code, answer.json()["message"]) == (401, "User cannot access the resource.")
        assert answer.headers["WWW-Authenticate"].startswith("Basic")
        for wrong in ("alice:A:SECRET", "alice", "bob:a:secret", ":", "alice:"):
            assert client.get("/", headers={"Authorization": encoded(wrong)}).status_code == 401, wrong
        for malformed in ("Basic", "Basic ====", "Bearer x", "Basic " + "a" * 8_000, encoded("alice:a:secret")[6:]):
            assert client.put("/x", headers={"Authorization": malformed}).status_code in (401, 404)
            assert client.get("/health", headers={"Authorization": malformed}).status_code == 401, malformed


def test_forwarded_request_needs_no_user_if_it_is_signed_with_the_leaders_key() -> None:
    signed = signature_headers(KEY, "PUT", CLUSTER_LEVEL, BODY)
    with opened(USERS) as client:

        def put(headers: dict[str, str], body: bytes = BODY, path: str = CLUSTER_LEVEL) -> int:
            return int(client.put(path, content=body, headers={FORWARDED: "1", **headers}).status_code)

        assert put(signed) == 204
        assert put({}) == 401
        assert put(signed, b'{"level": "TRACE"}') == 403
        assert put(signed, path=CLUSTER_LEVEL.replace("access_test", "other")) == 403
        assert put({**signed, ALGORITHM: "HmacSHA1"}) == 403
        assert put({**signed, SIGNATURE: "?"}) == 403
        assert put(signature_headers(new_session_key(), "PUT", CLUSTER_LEVEL, BODY)) == 403


def test_empty_session_key_signs_nothing() -> None:
    memory = WorkerInMemory(URL)
    memory.worker.replay(leader_record("old", "http://old"), 1)
    assert memory.worker.session_key() == ""


def test_admin_listeners_serve_loggers_alone_and_the_others_do_not_serve_them() -> None:
    with opened(part=Part.ADMIN) as client:
        assert client.get("/admin/loggers").status_code == 200
        assert client.get("/connectors").status_code == 404
    with opened(part=Part.WITHOUT_ADMIN) as client:
        assert client.get("/admin/loggers").status_code == 404
        assert client.get("/connectors").status_code == 200
        # Another worker's change of all workers' levels comes to the leader here.
        signed = signature_headers(KEY, "PUT", CLUSTER_LEVEL, BODY)
        assert client.put(CLUSTER_LEVEL, content=BODY, headers=signed).status_code == 204


def test_browsers_of_allowed_origins_may_use_allowed_methods() -> None:
    access = Access(USERS.users, ("https://ui.example.org",), ("GET", "PUT"))
    asked = {"Origin": "https://ui.example.org", "Access-Control-Request-Method": "PUT"}
    with opened(access) as client:
        answer = client.options("/connectors", headers=asked)
        assert answer.status_code == 200
        assert answer.headers["Access-Control-Allow-Origin"] == "https://ui.example.org"
        assert "PUT" in answer.headers["Access-Control-Allow-Methods"]
        assert client.options("/", headers={**asked, "Origin": "https://evil"}).status_code == 400
        assert client.options("/", headers={**asked, "Access-Control-Request-Method": "DELETE"}).status_code == 400
        answer = client.get("/", headers={"Origin": "https://ui.example.org"}, auth=ALICE)
        assert answer.headers["Access-Control-Allow-Origin"] == "https://ui.example.org"


def test_headers_are_set_and_added_to_all_responses() -> None:
    rules = parse_header_rules(["set X-Frame-Options: DENY", "add Cache-Control: no-cache, no-store", "setDate Age: 5"])
    with opened(Access(header_rules=rules)) as client:
        for path in ("/", "/none"):
            headers = client.get(path).headers
            assert headers["X-Frame-Options"] == "DENY"
            assert headers["Cache-Control"] == "no-cache, no-store"
            assert headers["Age"].endswith("GMT")


def test_users_are_read_from_a_properties_file(tmp_path: Path) -> None:
    path = tmp_path / "users.properties"
    path.write_text("# users\nalice=a\\:secret\n")
    assert Users.read(str(path)).accept(encoded("alice:a:secret"))
    path.write_text("")
    with pytest.raises(ConfigError, match="has no users"):
        Users.read(str(path))
    with pytest.raises(ConfigError, match=r"rest\.basic\.auth\.credentials\.file"):
        Users.read(str(tmp_path / "none"))


TLS = {"listeners.https.ssl.keystore.type": "PEM", "listeners.https.ssl.keystore.location": "/x.pem"}


@pytest.mark.parametrize(
    ("raw", "text"),
    [
        ({"listeners": "ftp://x:1"}, "ftp://x:1 must be http://HOST:PORT or https://HOST:PORT"),
        ({"listeners": "http://x:1,https://x:1"}, "an address occurs twice"),
        ({"listeners": "https://x:1"}, "listeners: https needs listeners.https.ssl.keystore.location"),
        ({"admin.listeners": "https://x:1"}, "admin.listeners: https needs"),
        ({"admin.listeners.https.ssl.keystore.type": "PEM"}, "admin.listeners have no https"),
        ({"listeners.https.ssl.keystore": "x"}, 'unknown configuration "listeners.https.ssl.keystore"'),
        ({"ssl.truststore.location": "x"}, 'set "listeners.https.ssl.truststore.location" for the REST API'),
        ({"rest.advertised.listener": "https"}, "no address of listeners has the protocol https"),
        ({"rest.extension.classes": "my.Extension"}, f"must be {BASIC} or empty"),
        ({"rest.extension.classes": BASIC}, "need each other"),
        ({"rest.basic.auth.credentials.file": "x"}, "need each other"),
        ({"access.control.allow.methods": "GET"}, "has no effect without access.control.allow.origin"),
        ({"access.control.allow.methods": "FETCH"}, "FETCH is not a method"),
        ({"access.control.allow.origin": "example.org"}, "must be * or an origin"),
        ({"response.http.headers.config": "put A: b"}, "Invalid header config action: 'put'"),
        ({"response.http.headers.config": "set A b"}, "Invalid header 'A b'"),
        ({"response.http.headers.config": "setDate A: b"}, "Invalid date 'b'"),
        ({"inter.worker.key.ttl.ms": "1"}, "is not supported: the key between workers is new with each leader"),
        ({"connector.client.config.override.policy": "All"}, "is not supported: connectors have the worker's clients"),
        ({"offset.flush.interval.ms": "1"}, "is not supported: offsets are committed with each batch"),
        ({"offset.storage.cleanup.policy": "x"}, "is not supported: the topic of offsets is compacted"),
        ({"listener": "http://x:1"}, 'unknown configuration "listener"; did you mean "listeners"?'),
        (
            {"metrics.listeners": "HTTP://x:1", "listener.name.https.ssl.client.auth": "none"},
            "names none of the listen",
        ),
    ],
)
def test_invalid_setting_of_a_listener_is_refused(raw: dict[str, str], text: str) -> None:
    with pytest.raises(ConfigError) as caught:
        worker_settings(raw)
    assert text in caught.value.message


def advertised(raw: dict[str, str]) -> str:
    return worker_settings(raw).worker.url


def test_worker_is_called_by_its_advertised_address() -> None:
    both = {"listeners": "https://a:1,http://b:2", **TLS}
    assert advertised({}) == "http://127.0.0.1:8083"
    assert advertised(both) == "http://b:2"
    assert advertised({**both, "rest.advertised.listener": "https"}) == "https://a:1"
    own = {"rest.advertised.host.name": "w1", "rest.advertised.port": "9"}
    assert advertised({**both, **own}) == "http://w1:9"
    assert advertised({**both, "rest.advertised.url": "https://proxy:443/"}) == "https://proxy:443"
    assert worker_settings({"listeners": "http://:1"}).worker.addresses == (Address("http", "", 1),)


def test_quoted_rules_of_headers_may_have_commas() -> None:
    raw = {"response.http.headers.config": 'set A: b, "add Cache-Control: no-cache, no-store"'}
    rules = worker_settings(raw).worker.header_rules
    assert [(rule.name, rule.value) for rule in rules] == [("A", "b"), ("Cache-Control", "no-cache, no-store")]


def test_empty_admin_listeners_serve_nothing() -> None:
    assert worker_settings({"admin.listeners": ""}).admin_addresses == ()
    assert worker_settings({}).admin_addresses is None
    [address] = worker_settings({"admin.listeners": "http://x:1"}).admin_addresses or ()
    assert address == Address("http", "x", 1)
