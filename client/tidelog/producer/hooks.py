"""The application's objects for a producer: callbacks, a partitioner, interceptors, a logger."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

from tidelog.cluster.config import take_callbacks, take_logger
from tidelog.cluster.sasl import OAuthCallback
from tidelog.message import Headers, Message, ThrottleEvent
from tidelog.producer.core.batch import DeliveryCallback
from tidelog.producer.core.partitioner import CustomPartitioner
from tidelog_foundation.errors import ConfigError, KafkaError

CALLBACKS = ("on_delivery", "error_cb", "stats_cb", "throttle_cb", "oauth_cb")
OBJECTS = (*CALLBACKS, "interceptors")
"""Settings that are not plain values, apart from a callable ``partitioner``."""

logger = logging.getLogger("tidelog.producer")


class ProducerRecord(NamedTuple):
    """The arguments of ``produce()`` (Kafka's ProducerRecord); ``timestamp`` 0 means now."""

    topic: str
    value: bytes | None
    key: bytes | None
    partition: int
    timestamp: int
    headers: Headers


class ProducerInterceptor(Protocol):
    """An observer of every record (KIP-42). Its exceptions are logged and have no effect. Both methods are optional."""

    def on_send(self, record: ProducerRecord) -> ProducerRecord | None:
        """Return the record to send instead, or None to keep it. Runs on the thread of ``produce()``."""

    def on_acknowledgement(self, metadata: Message, error: KafkaError | None) -> object:
        """Learn a record's outcome before its callback does. Runs on the network thread and must be quick."""


@dataclass(frozen=True, slots=True)
class Hooks:
    """All objects; None for those not given."""

    on_delivery: DeliveryCallback | None = None
    error_cb: Callable[[KafkaError], object] | None = None
    stats_cb: Callable[[str], object] | None = None
    throttle_cb: Callable[[ThrottleEvent], object] | None = None
    oauth_cb: OAuthCallback | None = None
    partitioner: CustomPartitioner | None = None
    interceptors: Sequence[Any] = ()
    log: logging.Logger = field(default=logger)


def take_hooks(settings: dict[str, Any]) -> Hooks:
    """Remove the objects from the settings and return them.

    Raises:
        TypeError: one of :data:`CALLBACKS` is not callable.
        ConfigError: ``interceptors`` is invalid.
    """
    callbacks = take_callbacks(settings, CALLBACKS)
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
    """Return the record after all interceptors in turn."""
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
    """Report a record's outcome to the interceptors."""
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
