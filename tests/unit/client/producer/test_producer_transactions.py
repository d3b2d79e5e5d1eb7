"""The calls of a transactional producer: its settings, and calls that do not fit."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tidelog import KafkaException, Producer, TopicPartition
from tidelog.consumer import ConsumerGroupMetadata
from tidelog.producer import PreparedTransaction
from tidelog.producer.config import ProducerConfig, read_config
from tidelog.producer.core.transaction_requests import OffsetToCommit
from tidelog.producer.transactional import group_member, offsets_of
from tidelog.testing import FakeCluster
from tidelog_foundation.errors import ConfigError, ErrorCode, KafkaError

GROUP = ConsumerGroupMetadata("g", 3, "m", None)


@pytest.fixture(scope="module")
def cluster() -> Iterator[FakeCluster]:
    with FakeCluster() as running:
        running.create_topic("t", 2)
        yield running


def config(**settings: Any) -> ProducerConfig:
    dotted = {key.replace("_", "."): value for key, value in settings.items()}
    return read_config({"bootstrap.servers": "127.0.0.1:9", **dotted})


def code_of(error: pytest.ExceptionInfo[KafkaException]) -> ErrorCode:
    return error.value.code


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"enable_idempotence": False}, "enable.idempotence"),
        ({"acks": "1"}, '"acks" to be all, not 1'),
        ({"retries": 0}, '"retries" to be at least 1'),
        ({"message_timeout_ms": 60_001}, '"message.timeout.ms" is 60001, which exceeds "transaction.timeout.ms" 60000'),
        ({"transaction_two_phase_commit_enable": True, "transaction_timeout_ms": 5_000}, "has no effect"),
    ],
)
def test_settings_that_contradict_transactions_are_refused(settings: dict[str, Any], text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        config(**{"transactional_id": "payments", **settings})


def test_two_phase_commit_needs_a_transactional_id() -> None:
    with pytest.raises(ConfigError, match=r'needs "transactional\.id"'):
        config(transaction_two_phase_commit_enable=True)


def test_records_of_a_transaction_fail_before_it_times_out() -> None:
    assert config(transactional_id="payments").message_timeout_ms == 60_000
    assert config(transactional_id="payments", transaction_timeout_ms=5_000).message_timeout_ms == 5_000
    assert config(transactional_id="payments", message_timeout_ms=1_000).message_timeout_ms == 1_000
    assert config(transaction_timeout_ms=5_000).message_timeout_ms == 300_000


def test_transactions_need_a_transactional_id(cluster: FakeCluster) -> None:
    with Producer({"bootstrap.servers": cluster.bootstrap_servers}) as producer:
        for call in (
            producer.init_transactions,
            producer.begin_transaction,
            producer.commit_transaction,
            producer.abort_transaction,
            lambda: producer.send_offsets_to_transaction([], GROUP),
        ):
            with pytest.raises(KafkaException) as caught:
                call()
            assert code_of(caught) is ErrorCode._NOT_CONFIGURED


def test_calls_before_the_first_transaction_have_no_effect(cluster: FakeCluster) -> None:
    with Producer({"bootstrap.servers": cluster.bootstrap_servers, "transactional.id": "early"}) as producer:
        for call in (
            producer.begin_transaction,
            producer.commit_transaction,
            producer.abort_transaction,
            lambda: producer.produce("t", b"v"),
            lambda: producer.produce_batch("t", [b"v"]),
            lambda: producer.send_offsets_to_transaction([TopicPartition("t", 0, 1)], GROUP),
        ):
            with pytest.raises(KafkaException) as caught:
                call()
            error = caught.value.error
            assert error.error_code() is ErrorCode._STATE
            assert (error.fatal(), error.retriable(), error.txn_requires_abort()) == (False, False, False)
        assert len(producer) == 0
    assert not list(cluster.records("t", 0))


def test_two_phase_calls_need_their_setting(cluster: FakeCluster) -> None:
    with Producer({"bootstrap.servers": cluster.bootstrap_servers, "transactional.id": "one-phase"}) as producer:
        for call in (producer.prepare_transaction, lambda: producer.init_transactions(keep_prepared=True)):
            with pytest.raises(KafkaException, match=r"needs the setting transaction\.two\.phase\.commit\.enable"):
                call()


def test_prepared_transaction_is_text_and_back() -> None:
    prepared = PreparedTransaction(1007, 3)
    assert PreparedTransaction.parse(str(prepared)) == prepared
    for text in ("", "7", "a:b", "1:2:3"):
        with pytest.raises(KafkaException, match="is not a prepared transaction"):
            PreparedTransaction.parse(text)


def test_positions_without_an_offset_are_left_out() -> None:
    positions = [TopicPartition("t", 0, 5, "note", 2), TopicPartition("t", 1), TopicPartition("t", 2, 0)]
    assert offsets_of(positions) == [OffsetToCommit("t", 0, 5, 2, "note"), OffsetToCommit("t", 2, 0)]


def test_arguments_of_other_types_are_refused() -> None:
    with pytest.raises(TypeError, match="list of TopicPartition"):
        offsets_of([("t", 0, 5)])  # type: ignore[list-item]
    with pytest.raises(TypeError, match="consumer_group_metadata"):
        group_member("g")  # type: ignore[arg-type]


@pytest.mark.parametrize("timeout", [None, "3"])
def test_timeout_that_is_no_number_is_refused_before_the_call_begins(cluster: FakeCluster, timeout: Any) -> None:
    with Producer({"bootstrap.servers": cluster.bootstrap_servers, "transactional.id": "no-number"}) as producer:
        with pytest.raises(TypeError, match="timeout must be a number of seconds"):
            producer.init_transactions(timeout)
        producer.init_transactions(10)
        producer.begin_transaction()
        with pytest.raises(TypeError, match="timeout must be a number of seconds"):
            producer.commit_transaction(timeout)
        producer.abort_transaction(10)


def test_text_does_not_complete_a_prepared_transaction(cluster: FakeCluster) -> None:
    """It would differ from the prepared transaction, which would be aborted."""
    with Producer({"bootstrap.servers": cluster.bootstrap_servers, "transactional.id": "text"}) as producer:
        for state in ("1007:3", None, (1007, 3)):
            with pytest.raises(TypeError, match="must be a PreparedTransaction"):
                producer.complete_transaction(state)  # type: ignore[arg-type]


def test_call_that_did_not_complete_in_time_states_the_last_error(cluster: FakeCluster) -> None:
    cluster.fail_next("InitProducerId", ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, 1_000)
    with Producer({"bootstrap.servers": cluster.bootstrap_servers, "transactional.id": "slow"}) as producer:
        with pytest.raises(KafkaException, match="the last error was COORDINATOR_LOAD_IN_PROGRESS") as caught:
            producer.init_transactions(0.3)
        assert (code_of(caught), caught.value.error.retriable()) == (ErrorCode._TIMED_OUT, True)
        cluster.clear_faults()
        producer.init_transactions(10)


def test_exception_of_a_callback_does_not_hide_that_the_transaction_is_committed(cluster: FakeCluster) -> None:
    def fail(_error: Any, message: Any) -> None:
        raise ValueError(f"callback {message.value().decode()}")

    with Producer({"bootstrap.servers": cluster.bootstrap_servers, "transactional.id": "raises"}) as producer:
        producer.init_transactions(30)
        producer.begin_transaction()
        for value in ("0", "1"):
            producer.produce("t", value, on_delivery=fail)
        with pytest.raises(ValueError, match="callback 0") as caught:
            producer.commit_transaction(30)
        assert caught.value.__notes__ == ["commit_transaction() has succeeded; this exception comes from a callback"]
        producer.begin_transaction()
        producer.abort_transaction(30)


def test_exception_of_a_callback_does_not_hide_that_a_commit_failed(cluster: FakeCluster) -> None:
    def fail(_error: Any, _message: Any) -> None:
        raise ValueError("callback")

    with Producer({"bootstrap.servers": cluster.bootstrap_servers, "transactional.id": "fails"}) as producer:
        producer.init_transactions(30)
        producer.begin_transaction()
        cluster.fail_next("Produce", ErrorCode.INVALID_RECORD)
        producer.produce("t", "value", on_delivery=fail)
        with pytest.raises(KafkaException, match="INVALID_RECORD") as caught:
            producer.commit_transaction(30)
        assert caught.value.error.txn_requires_abort()
        assert isinstance(caught.value.__cause__, ValueError)
        producer.abort_transaction(30)


def test_offsets_of_an_unknown_topic_require_an_abort_when_the_time_is_over(cluster: FakeCluster) -> None:
    with Producer({"bootstrap.servers": cluster.bootstrap_servers, "transactional.id": "deleted"}) as producer:
        producer.init_transactions(30)
        producer.begin_transaction()
        with pytest.raises(KafkaException, match="UNKNOWN_TOPIC_OR_PARTITION") as caught:
            producer.send_offsets_to_transaction(
                [TopicPartition("deleted", 0, 5)], ConsumerGroupMetadata("g", -1, "", None), 0.5
            )
        assert caught.value.error.txn_requires_abort()
        assert not caught.value.error.retriable()
        producer.abort_transaction(30)
        producer.begin_transaction()
        producer.abort_transaction(30)


def test_error_keeps_its_flags() -> None:
    error = KafkaError(KafkaError._FAIL, "text", fatal=True, retriable=True, txn_requires_abort=True)
    assert (error.fatal(), error.retriable(), error.txn_requires_abort()) == (True, True, True)
    assert not KafkaError(KafkaError.NOT_COORDINATOR, retriable=False).retriable()
    assert KafkaError(KafkaError.NOT_COORDINATOR).retriable()
