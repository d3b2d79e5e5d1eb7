"""What an application hands to a producer that is no plain value: callbacks, a partitioner, interceptors, a logger."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

from tidelog.cluster.config import take_logger
from tidelog.message import Headers, Message
from tidelog.producer.core import DeliveryCallback
from tidelog.producer.core.partitioner import CustomPartitioner
from tidelog_foundation.errors import ConfigError, KafkaError

CALLBACKS = ("on_delivery", "error_cb", "stats_cb", "throttle_cb")
OBJECTS = (*CALLBACKS, "interceptors")
"""Settings that are no plain values, beside a callable ``partitioner``."""

logger = logging.getLogger("tidelog.producer")


class ProducerRecord(NamedTuple):
    """A record as ``produce()`` was given it (Kafka's ProducerRecord); ``timestamp`` 0 stands for now."""

    topic: str
    value: bytes | None
    key: bytes | None
    partition: int
    timestamp: int
    headers: Headers


class ProducerInterceptor(Protocol):
    """Sees every record (KIP-42). What it raises is logged and changes nothing; either method may be left out."""

    def on_send(self, record: ProducerRecord) -> ProducerRecord | None:
        """Return the record that is to be sent instead; None leaves it as it is. On the thread of ``produce()``."""
        ...

    def on_acknowledgement(self, metadata: Message, error: KafkaError | None) -> object:
        """Learn what became of a record, before its callback is called; on the network thread: be quick."""
        ...


@dataclass(frozen=True, slots=True)
class Hooks:
    """All of them; those that were not given are None."""

    on_delivery: DeliveryCallback | None = None
    error_cb: Callable[[KafkaError], object] | None = None
    stats_cb: Callable[[str], object] | None = None
    partitioner: CustomPartitioner | None = None
    interceptors: Sequence[Any] = ()
    log: logging.Logger = field(default=logger)


def take_hooks(settings: dict[str, Any]) -> Hooks:
    """Take them out of the settings.

    Raises:
        TypeError: one of :data:`CALLBACKS` cannot be called.
        ConfigError: ``interceptors`` are none.
    """
    callbacks = {key: _callback(key, settings.pop(key, None)) for key in CALLBACKS}
    callbacks.pop("throttle_cb")
    partitioner = settings.pop("partitioner") if callable(settings.get("partitioner")) else None
    interceptors = settings.pop("interceptors", None) or ()
    if (
        not isinstance(interceptors, Sequence)
        or isinstance(interceptors, str)
        or not all(map(_intercepts, interceptors))
    ):
        text = "must be a list of objects with on_send(record) or on_acknowledgement(metadata, error)"
        raise ConfigError(f'invalid value {interceptors!r} for configuration "interceptors": {text}')
    log = take_logger(settings, logger)
    return Hooks(**callbacks, partitioner=partitioner, interceptors=tuple(interceptors), log=log)


def before_send(interceptors: Sequence[Any], record: ProducerRecord, log: logging.Logger) -> ProducerRecord:
    """Return the record as the interceptors, one after the other, want it to be sent."""
    for interceptor in interceptors:
        on_send = getattr(interceptor, "on_send", None)
        if on_send is None:
            continue
        try:
            changed = on_send(record)
            record = record if changed is None else ProducerRecord(*changed)
        except Exception:
            log.exception("the interceptor %r failed with a record for topic %s", interceptor, record.topic)
    return record


def after_acknowledgement(
    interceptors: Sequence[Any], metadata: Message, error: KafkaError | None, log: logging.Logger
) -> None:
    """Tell the interceptors what became of a record."""
    for interceptor in interceptors:
        on_acknowledgement = getattr(interceptor, "on_acknowledgement", None)
        if on_acknowledgement is None:
            continue
        try:
            on_acknowledgement(metadata, error)
        except Exception:
            log.exception("the interceptor %r failed with an acknowledgement", interceptor)


def _intercepts(interceptor: object) -> bool:
    return any(callable(getattr(interceptor, name, None)) for name in ("on_send", "on_acknowledgement"))


def _callback(key: str, callback: Any) -> Any:
    if callback is not None and not callable(callback):
        raise TypeError(f"{key} must be callable, not {type(callback).__name__}")
    return callback
