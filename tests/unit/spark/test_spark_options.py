"""Options and offsets of ``format("tidelog")`` as text: what is understood, and what is refused with which words."""

from __future__ import annotations

import pytest

from tidelog_foundation.errors import ConfigError
from tidelog_spark.offsets import EARLIEST, LATEST, OffsetBound, parse_bound
from tidelog_spark.options import SourceOptions, batch_plan, parse_options, stream_plan

MINIMAL = {"bootstrap.servers": "127.0.0.1:9092", "subscribe": "t"}


def test_options_take_spark_names_in_any_case() -> None:
    raw = {
        "kafka.bootstrap.servers": "a:1,b:2",
        "SUBSCRIBE": "t, u",
        "startingoffsets": "earliest",
        "includeheaders": "true",
        "failOnDataLoss": "False",
        "maxoffsetspertrigger": "10",
        "minpartitions": "4",
        "kafkaconsumer.polltimeoutms": "5000",
    }
    options = parse_options(raw)
    assert (options.bootstrap_servers, options.subscribe) == ("a:1,b:2", ("t", "u"))
    assert (options.include_headers, options.fail_on_data_loss) == (True, False)
    assert (options.max_offsets_per_trigger, options.min_partitions, options.poll_timeout_ms) == (10, 4, 5_000)


def test_uncommitted_records_are_read_only_on_demand() -> None:
    assert parse_options(MINIMAL).is_read_committed
    for name in ("isolation.level", "kafka.isolation.level"):
        assert not parse_options(MINIMAL | {name: "read_uncommitted"}).is_read_committed


@pytest.mark.parametrize(
    ("raw", "text"),
    [
        (MINIMAL | {"isolation.level": "dirty"}, "read_committed"),
        (MINIMAL | {"startingofset": "x"}, 'unknown configuration "startingofset"; did you mean "startingOffsets"?'),
        (MINIMAL | {"includeheader": "true"}, 'did you mean "includeHeaders"?'),
        (MINIMAL | {"path": "/x"}, 'unknown configuration "path"'),
        ({"subscribe": "t"}, 'missing required configuration "bootstrap.servers"'),
        ({"bootstrap.servers": "a:1"}, 'missing required configuration "subscribe"'),
        (MINIMAL | {"subscribe": " , "}, "must not be empty"),
        (MINIMAL | {"maxoffsetspertrigger": "0"}, 'for configuration "maxOffsetsPerTrigger": must be at least 1'),
        (MINIMAL | {"failondataloss": "maybe"}, "must be true or false"),
        (MINIMAL | {"kafka.bootstrap.servers": "a:1"}, "both bootstrap.servers and kafka.bootstrap.servers"),
    ],
)
def test_options_are_refused_with_a_reason(raw: dict[str, str], text: str) -> None:
    with pytest.raises(ConfigError) as raised:
        parse_options(raw)
    assert text in str(raised.value)


@pytest.mark.parametrize(
    ("option", "text"),
    [
        ({"starting_offsets": "latest"}, "startingOffsets can't be latest"),
        ({"starting_offsets": '{"t":{"0":-1}}'}, "startingOffsets can't be latest"),
        ({"ending_offsets": "earliest"}, "endingOffsets can't be earliest"),
        ({"ending_offsets": '{"t":{"0":5,"1":-2}}'}, "endingOffsets can't be earliest"),
        ({"max_offsets_per_trigger": 5}, "maxOffsetsPerTrigger is for streaming queries"),
    ],
)
def test_batch_plan_refuses_what_a_batch_cannot_do(option: dict[str, object], text: str) -> None:
    with pytest.raises(ConfigError) as raised:
        batch_plan(SourceOptions("a:1", ("t",), **option))
    assert text in str(raised.value)


def test_plans_have_sparks_defaults() -> None:
    options = parse_options(MINIMAL)
    assert batch_plan(options).starting == OffsetBound(default=EARLIEST)
    assert batch_plan(options).ending == OffsetBound(default=LATEST)
    assert stream_plan(options).starting == OffsetBound(default=LATEST)


def test_stream_plan_refuses_an_end() -> None:
    with pytest.raises(ConfigError, match="a stream has no end"):
        stream_plan(parse_options(MINIMAL | {"endingoffsets": "latest"}))


def test_bound_reads_words_and_json() -> None:
    assert parse_bound("startingOffsets", " Earliest ", ["t"]) == OffsetBound(default=EARLIEST)
    bound = parse_bound("startingOffsets", '{"t":{"0":23,"1":-2},"u":{"0":-1}}', ["t", "u"])
    assert bound.of([("t", 0), ("t", 1), ("u", 0)], "startingOffsets") == {("t", 0): 23, ("t", 1): -2, ("u", 0): -1}
    assert bound.asks_for(LATEST)
    assert bound.asks_for(EARLIEST)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("yesterday", "must be earliest, latest or JSON"),
        ('{"t":{"0":23}', "Expecting ',' delimiter"),
        ("{}", "must be earliest, latest or JSON"),
        ("[1]", "must be earliest, latest or JSON"),
        ('{"t":5}', 'for "t": must be an object'),
        ('{"t":{}}', 'for "t": must be an object'),
        ('{"t":{"first":5}}', '"first" is not a partition of "t"'),
        ('{"t":{"0":"5"}}', '"5" is not an offset of t-0'),
        ('{"t":{"0":true}}', "true is not an offset of t-0"),
        ('{"t":{"0":-3}}', "-3 is not an offset of t-0"),
        ('{"x":{"0":5}}', "names x, which the option subscribe does not"),
    ],
)
def test_bound_refuses_other_text(text: str, reason: str) -> None:
    with pytest.raises(ConfigError) as raised:
        parse_bound("endingOffsets", text, ["t"])
    assert reason in str(raised.value)
    assert "endingOffsets" in str(raised.value)


def test_bound_must_name_every_partition() -> None:
    bound = parse_bound("startingOffsets", '{"t":{"0":23,"2":1}}', ["t"])
    with pytest.raises(ConfigError, match=r"it names t-0, t-2, the topics have t-0, t-1"):
        bound.of([("t", 0), ("t", 1)], "startingOffsets")


@pytest.mark.parametrize("prefix", ["", "kafka.", "KAFKA."])
def test_options_of_security_are_those_of_clients(prefix: str) -> None:
    secret = {f"{prefix}security.protocol": "ssl", f"{prefix}ssl.key.password": "canary", f"{prefix}ssl.ca.pem": "ca"}
    options = parse_options(MINIMAL | secret)
    assert (options.client.security_protocol, options.client.ssl_key_password) == ("ssl", "canary")
    assert options.client.bootstrap_servers == ("127.0.0.1:9092",)
    assert "canary" not in repr(options) + repr(options.client)


def test_option_is_a_reference_to_a_config_provider(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CANARY", "canary")
    reference = {"config.providers": "env", "kafka.ssl.key.password": "${env:CANARY}"}
    assert parse_options(MINIMAL | reference).ssl_key_password == "canary"
