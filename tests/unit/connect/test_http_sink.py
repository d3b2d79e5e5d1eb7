"""HttpSink's requests to a real server on loopback, without Spark."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from http_api import Api

from tidelog.testing.ports import free_ports
from tidelog_connect.connectors.http.sender import HttpRecord, Sender
from tidelog_connect.connectors.http.settings import is_retried
from tidelog_connect.connectors.registry import Registry
from tidelog_foundation.errors import TidelogError


@pytest.fixture
def api() -> Iterator[Api]:
    found = Api()
    yield found
    found.close()


def parsed(url: str, **settings: str) -> dict[str, Any]:
    named = {key.replace("_", "."): value for key, value in settings.items()}
    config = {"name": "http", "connector.class": "HttpSink", "topics": "t", "http.api.url": url, **named}
    return Registry.installed("1").settings(config)


def records(*bodies: str | None) -> list[HttpRecord]:
    return [HttpRecord("t", f"t-0-{number}", f"k/{number}", body) for number, body in enumerate(bodies)]


def test_each_record_is_a_request_with_headers_and_credentials(api: Api) -> None:
    settings = parsed(
        api.url + "/${topic}/${key}",
        request_method="put",
        headers="X-A: b:c|X-D:e",
        auth_type="bearer",
        bearer_token="secret",
    )
    assert Sender(settings).send(records("1", None, "2")) == 0
    assert api.requests == [("PUT", "/t/k%2F0", "1"), ("PUT", "/t/k%2F2", "2")]
    sent = api.headers[0]
    assert (sent["x-a"], sent["x-d"], sent["authorization"]) == ("b:c", "e", "Bearer secret")
    assert sent["content-type"] == "application/json"
    basic = parsed(api.url, auth_type="BASIC", connection_user="u", connection_password="p")
    Sender(basic).send(records("1"))
    assert api.headers[-1]["authorization"] == "Basic dTpw"
    assert "secret" not in repr(settings)


def test_batches_have_a_size_and_end_at_another_url_and_at_deletions(api: Api) -> None:
    Sender(parsed(api.url, batch_max_size="2")).send(records("1", "2", "3"))
    assert [body for _, _, body in api.requests] == ["[1,2]", "[3]"]
    api.requests.clear()
    keyed = parsed(api.url + "/${key}", batch_max_size="2", behavior_on_null_values="delete")
    Sender(keyed).send(records("1", None, "3"))
    assert [(method, body) for method, _, body in api.requests] == [("POST", "[1]"), ("DELETE", ""), ("POST", "[3]")]


def test_failures_are_retried_with_growing_waits(api: Api) -> None:
    waits: list[float] = []
    api.codes = [503, 0, 429]
    assert Sender(parsed(api.url, retry_backoff_ms="100"), waits.append).send(records("1", "2")) == 0
    assert [body for _, _, body in api.requests] == ["1", "1", "1", "1", "2"]
    assert waits == [0.1, 0.2, 0.4]


def test_last_failure_fails_or_is_tolerated(api: Api, caplog: pytest.LogCaptureFixture) -> None:
    api.codes = [500] * 2
    once = {"max_retries": "1", "retry_backoff_ms": "0"}
    with pytest.raises(TidelogError, match=r"of t-0-0 failed: HTTP 500 no \(2 attempts\)"):
        Sender(parsed(api.url, **once)).send(records("1", "2"))
    api.codes = [500] * 2
    assert Sender(parsed(api.url, **once, behavior_on_error="log")).send(records("1", "2")) == 1
    assert "t-0-0 failed" in caplog.text
    assert api.requests[-1][2] == "2"
    api.codes, api.requests[:] = [404], []
    with pytest.raises(TidelogError, match="HTTP 404"):
        Sender(parsed(api.url, retry_on_status_codes="429,500-")).send(records("1"))
    assert len(api.requests) == 1
    with pytest.raises(TidelogError, match="t-0-0 has no value"):
        Sender(parsed(api.url, behavior_on_null_values="fail")).send(records(None))


def test_server_that_is_away_is_an_error() -> None:
    settings = parsed(f"http://127.0.0.1:{free_ports(1)[0]}", max_retries="1", retry_backoff_ms="0")
    with pytest.raises(TidelogError, match="ConnectError"):
        Sender(settings).send(records("1"))


def test_codes_are_single_ones_and_ranges() -> None:
    assert [is_retried(code, ["429", "500-502"]) for code in (428, 429, 500, 502, 503)] == [0, 1, 1, 1, 0]
    assert is_retried(599, ["400-"])


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"http.api.url": "ftp://x"}, "Must be a URL"),
        ({"retry.on.status.codes": "5xx"}, "5xx is no status code"),
        ({"auth.type": "BASIC"}, "requires connection.user"),
        ({"auth.type": "BEARER"}, "requires bearer.token"),
        ({"headers": "x"}, "Not a header"),
        ({"behavior.on.null.values": "delete"}, "requires ${key}"),
        ({"batch.max.size": "0"}, "at least 1"),
    ],
)
def test_settings_of_http_that_do_not_fit_are_errors(settings: dict[str, str], text: str) -> None:
    config = {"name": "http", "connector.class": "HttpSink", "topics": "t", "http.api.url": "http://x"}
    errors = Registry.installed("1").errors({**config, **settings})
    assert len(errors) == 1
    assert text in errors[0]
