"""Options and offsets of ``format("tidelog")`` as text: what is understood, and what is refused with which words."""

from __future__ import annotations

from dataclasses import fields

import pytest

from tidelog.cluster.security import SecurityConfig
from tidelog_foundation.config import config_key
from tidelog_foundation.errors import ConfigError
from tidelog_spark.source.offsets import EARLIEST, LATEST
from tidelog_spark.source.options import SourceOptions, batch_plan, parse_options, stream_plan
from tidelog_spark.source.positions import OffsetBound, parse_bound
from tidelog_spark.source.selection import TopicSelection

MINIMAL = {"bootstrap.servers": "127.0.0.1:9092", "subscribe": "t"}
TOPICS = TopicSelection("subscribe", ("t", "u"))


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
        (MINIMAL | {"subscribe": " , "}, "must not be empty"),
        (MINIMAL | {"startingtimestamp": "-5"}, "must be at least 0"),
        (MINIMAL | {"startingtimestamp": "noon"}, "'noon'"),
        (MINIMAL | {"startingoffsetsbytimestampstrategy": "earliest"}, "must be one of error, latest"),
        (MINIMAL | {"minoffsetspertrigger": "0"}, "must be at least 1"),
        (MINIMAL | {"maxrecordsperpartition": "0"}, "must be at least 1"),
        (MINIMAL | {"maxtriggerdelay": "5 fortnights"}, "must be a number with one of the units us, ms, s"),
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
        ({"min_offsets_per_trigger": 5}, "minOffsetsPerTrigger is for streaming queries"),
        ({"max_trigger_delay": "5s"}, "maxTriggerDelay is for streaming queries"),
        ({"starting_timestamp": 6, "ending_timestamp": 5}, "startingTimestamp is 6, which is after endingTimestamp, 5"),
        (
            {"starting_offsets": '{"t":{"0":9}}', "ending_offsets": '{"t":{"0":8}}'},
            "startingOffsets of t-0 is 9, which is after endingOffsets, 8",
        ),
        (
            {"starting_offsets_by_timestamp": '{"t":{"0":9}}', "ending_timestamp": 8},
            "startingOffsetsByTimestamp of t-0 is 9, which is after endingTimestamp, 8",
        ),
        ({"starting_offsets_by_timestamp": '{"t":{"0":-1}}'}, "-1 is not a timestamp of t-0"),
        ({"ending_offsets_by_timestamp": "noon"}, "invalid endingOffsetsByTimestamp 'noon'"),
        ({"ending_offsets_by_timestamp": '{"x":{"0":1}}'}, "names x, which the option subscribe does not"),
    ],
)
def test_batch_plan_refuses_what_a_batch_cannot_do(option: dict[str, object], text: str) -> None:
    with pytest.raises(ConfigError) as raised:
        batch_plan(SourceOptions("a:1", ("t",), **option))
    assert text in str(raised.value)


def test_plans_have_sparks_defaults() -> None:
    options = parse_options(MINIMAL)
    assert batch_plan(options).starting == OffsetBound(default=EARLIEST)
    assert batch_plan(options).ending == OffsetBound(default=LATEST, option="endingOffsets")
    assert stream_plan(options).starting == OffsetBound(default=LATEST)


@pytest.mark.parametrize(
    ("option", "text"),
    [
        ({"ending_offsets": "latest"}, "endingOffsets is for batch queries; a stream has no end"),
        ({"ending_timestamp": 5}, "endingTimestamp is for batch queries"),
        ({"ending_offsets_by_timestamp": "{}"}, "endingOffsetsByTimestamp is for batch queries"),
        (
            {"min_offsets_per_trigger": 6, "max_offsets_per_trigger": 5},
            "minOffsetsPerTrigger is 6, which is more than maxOffsetsPerTrigger, 5",
        ),
        ({"max_trigger_delay": "5s"}, "maxTriggerDelay has no effect without minOffsetsPerTrigger"),
    ],
)
def test_stream_plan_refuses_what_a_stream_cannot_do(option: dict[str, object], text: str) -> None:
    with pytest.raises(ConfigError) as raised:
        stream_plan(SourceOptions("a:1", ("t",), **option))
    assert text in str(raised.value)


def test_timestamp_prevails_over_timestamps_by_partition_and_these_over_offsets() -> None:
    offsets = {"startingOffsets": "earliest", "startingOffsetsByTimestamp": '{"t":{"0":7}}'}
    by_partition = stream_plan(parse_options(MINIMAL | offsets)).starting
    assert (by_partition.of([("t", 0)]), by_partition.is_timestamp) == ({("t", 0): 7}, True)
    everywhere = stream_plan(parse_options(MINIMAL | offsets | {"startingTimestamp": "9"})).starting
    assert everywhere.of([("t", 0), ("t", 1)]) == {("t", 0): 9, ("t", 1): 9}


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({}, "exactly one of the options subscribe, subscribePattern, assign must be given, none is given"),
        ({"subscribe": "t", "assign": '{"t":[0]}'}, "must be given, not subscribe and assign"),
        ({"subscribepattern": "t("}, "invalid subscribePattern 't('"),
        ({"assign": "t"}, "invalid assign 't'"),
        ({"assign": "[]"}, 'must be JSON such as {"topic":[0,1]}'),
        ({"assign": '{"t":[]}'}, 'for "t": must be a list of partitions'),
        ({"assign": '{"t":[-1]}'}, '-1 is not a partition of "t"'),
        ({"assign": '{"t":["0"]}'}, '"0" is not a partition of "t"'),
    ],
)
def test_selection_of_topics_is_refused_with_a_reason(options: dict[str, str], text: str) -> None:
    for plan in (batch_plan, stream_plan):
        with pytest.raises(ConfigError) as raised:
            plan(parse_options({"bootstrap.servers": "a:1", **options}))
        assert text in str(raised.value)


@pytest.mark.parametrize(
    ("option", "text"),
    [
        ("groupIdPrefix", '"groupIdPrefix" is not supported: the source joins no consumer group'),
        ("kafka.group.id", '"kafka.group.id" is not supported: the source joins no consumer group'),
        ("KAFKA.AUTO.OFFSET.RESET", '"kafka.auto.offset.reset" is not supported: set "startingOffsets" instead'),
        ("kafka.enable.auto.commit", "Spark keeps the offsets in the checkpoint"),
        ("kafka.key.deserializer", "keys and values are bytes"),
        ("kafka.value.deserializer", "keys and values are bytes"),
        ("fetchOffset.numRetries", 'set "kafkaConsumer.pollTimeoutMs"'),
        ("kafka.retry.backof.ms", 'did you mean "kafka.retry.backoff.ms"?'),
        ("kafka.minPartitions", 'unknown configuration "kafka.minPartitions"'),
    ],
)
def test_option_of_kafka_that_cannot_be_honoured_is_refused_with_a_reason(option: str, text: str) -> None:
    with pytest.raises(ConfigError) as raised:
        parse_options(MINIMAL | {option: "1"})
    assert text in str(raised.value)


def test_options_of_clients_are_passed_on() -> None:
    given = {
        "kafka.client.id": "reports",
        "kafka.request.timeout.ms": "7000",
        "KAFKA.retry.backoff.ms": "20",
        "retry.backoff.max.ms": "300",
    }
    client = parse_options(MINIMAL | given).client
    assert (client.client_id, client.request_timeout_ms) == ("reports", 7_000)
    assert (client.retry_backoff_ms, client.retry_backoff_max_ms) == (20, 300)
    with pytest.raises(ConfigError, match="must be from 1 to"):
        parse_options(MINIMAL | {"kafka.max.partition.fetch.bytes": "0"})


def test_pattern_matches_whole_names_and_no_internal_topics() -> None:
    selection = parse_options({"bootstrap.servers": "a:1", "subscribePattern": "a.*"}).topics
    existing = {"ab": False, "a": False, "ba": False, "a__internal": True}
    assert selection.choose_topics(existing) == ("a", "ab")


def test_bound_reads_words_and_json() -> None:
    assert parse_bound("startingOffsets", " Earliest ", TOPICS) == OffsetBound(default=EARLIEST)
    bound = parse_bound("startingOffsets", '{"t":{"0":23,"1":-2},"u":{"0":-1}}', TOPICS)
    assert bound.of([("t", 0), ("t", 1), ("u", 0)]) == {("t", 0): 23, ("t", 1): -2, ("u", 0): -1}
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
        parse_bound("endingOffsets", text, TOPICS)
    assert reason in str(raised.value)
    assert "endingOffsets" in str(raised.value)


def test_bound_must_name_every_partition() -> None:
    bound = parse_bound("startingOffsets", '{"t":{"0":23,"2":1}}', TOPICS)
    with pytest.raises(ConfigError, match=r"it names t-0, t-2, the topics have t-0, t-1"):
        bound.of([("t", 0), ("t", 1)])


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


BAD_VALUES = {
    "columns": " , ",
    "bootstrap.servers": "",
    "subscribe": "",
    "subscribePattern": "t(",
    "assign": '{"t":[-1]}',
    "startingOffsets": "newest",
    "endingOffsets": '{"t":{"0":-3}}',
    "startingTimestamp": "-1",
    "endingTimestamp": "soon",
    "startingOffsetsByTimestamp": '{"t":{"x":1}}',
    "endingOffsetsByTimestamp": "[]",
    "startingOffsetsByTimestampStrategy": "earliest",
    "isolation.level": "committed",
    "includeHeaders": "2",
    "failOnDataLoss": "no!",
    "maxOffsetsPerTrigger": "-1",
    "minOffsetsPerTrigger": "1.5",
    "maxTriggerDelay": "-5s",
    "minPartitions": "0",
    "maxRecordsPerPartition": "many",
    "kafkaConsumer.pollTimeoutMs": "0",
    "client.id": "",
    "request.timeout.ms": "0",
    "retry.backoff.ms": "-1",
    "retry.backoff.max.ms": "x",
    "max.partition.fetch.bytes": "0",
}


@pytest.mark.parametrize("option", BAD_VALUES)
def test_bad_value_is_refused_by_the_name_of_its_option(option: str) -> None:
    raw = {"bootstrap.servers": "a:1", "subscribe": "t", "minOffsetsPerTrigger": "1", option: BAD_VALUES[option]}
    if option in ("subscribePattern", "assign"):
        del raw["subscribe"]
    if option.startswith("ending"):
        del raw["minOffsetsPerTrigger"]
    plan = batch_plan if option.startswith("ending") else stream_plan
    with pytest.raises(ConfigError) as raised:
        plan(parse_options(raw))
    assert option in str(raised.value)


def test_every_option_has_a_bad_value_here() -> None:
    own = {config_key(each) for each in fields(SourceOptions)} - {config_key(each) for each in fields(SecurityConfig)}
    assert own - BAD_VALUES.keys() == {"client.rack"}, "any text is a rack"
