"""Options of Spark's Kafka source that this source refuses, each with its reason. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from tidelog_foundation.errors import ConfigError

_NO_GROUP = "the source joins no consumer group and commits no offsets to one, so it needs no name of a group"
_OWN_START = 'set "startingOffsets" instead; a restarted stream continues from its checkpoint'
_BYTES = "keys and values are bytes; decode them with functions of DataFrames"
_RETRIES = 'set "kafkaConsumer.pollTimeoutMs", the time after which retries end, instead'
REFUSED = {
    "groupIdPrefix": _NO_GROUP,
    "kafka.group.id": _NO_GROUP,
    "kafka.group.instance.id": _NO_GROUP,
    "kafka.enable.auto.commit": "Spark keeps the offsets in the checkpoint of the query",
    "kafka.auto.offset.reset": _OWN_START,
    "kafka.key.deserializer": _BYTES,
    "kafka.value.deserializer": _BYTES,
    "kafka.interceptor.classes": "there are no Java classes in the source, and interceptors could change records",
    "fetchOffset.numRetries": _RETRIES,
    "fetchOffset.retryIntervalMs": _RETRIES,
}


def check_refused(given: Iterable[str]) -> None:
    """Raise ConfigError for the first option, in any case, that the source refuses."""
    reasons = {name.lower(): (name, reason) for name, reason in REFUSED.items()}
    for key in given:
        if key.lower() in reasons:
            name, reason = reasons[key.lower()]
            raise ConfigError(f'the option "{name}" is not supported: {reason}')
