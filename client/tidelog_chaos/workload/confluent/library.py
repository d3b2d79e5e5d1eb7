"""confluent-kafka's clients (librdkafka) as those of a run: over Kafka's protocol, at the nodes' Kafka listeners.

Only this package knows how they differ from Tidelog's:

- their errors, messages and partitions are other classes: errors are translated by number;
- an error on their own side without a number in Tidelog is _FAIL with its name in the text;
- a consumer cannot assign without a ``group.id``: one without a group gets one that nobody joins;
- ``request.timeout.ms`` of a consumer is ``socket.timeout.ms``;
- a consumer that is dropped without ``close()`` neither leaves its group nor commits; :meth:`abandon` uses that;
- the generation is in the bytes that a transactional producer gets;
- a commit, and every call that waits for it, may never end once brokers have been gone from the metadata (librdkafka's
  issues 3740 and 5511), and a producer that sends offsets to a transaction may wait forever for the group's coordinator
  whatever timeout it was given (5456 and 5511): after a timeout the caller gets a fatal error, and the client is left
  behind;
- a commit is repeated after later ones, so the committed offset may go back for a moment;
- when records time out it raises its producer epoch, and sends records again in the new one that may be stored in the
  old one (librdkafka's issue 4953);
- a consumer that is assigned partitions anew while it waits for unstable offsets forgets that it waits, and begins as
  ``auto.offset.reset`` says (``rd_kafka_assignment_apply_offsets``, up to 2.16; it does so beside Apache Kafka too):
  with ``error``, it says so;
- a delivery report has the error of the last attempt, whatever the outcome of earlier ones.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from importlib.metadata import version
from typing import Any, ClassVar

import confluent_kafka

from tidelog_chaos.workload.confluent.consumer import ConfluentConsumer
from tidelog_chaos.workload.confluent.producers import ConfluentProducer, ConfluentTransactions
from tidelog_chaos.workload.confluent.session import ConfluentSession
from tidelog_chaos.workload.library import Committed, Library, SendOutcome, send_outcome_of_last_attempt
from tidelog_foundation.errors import ConfigError, ErrorCode, TidelogError


class ConfluentLibrary(Library):
    """confluent-kafka's clients. A commit that a loading or missing coordinator refused is repeated, maybe after a
    later one.
    """

    is_kafkas = True
    # Records wait longer than a fault lasts; see the module about those that time out.
    producer_defaults: ClassVar[Mapping[str, Any]] = {"message.timeout.ms": 120_000}
    reorders_commits = True

    def versions(self) -> Mapping[str, str]:
        """Return the versions of the package and of its library."""
        return {"confluent-kafka": version("confluent-kafka"), "librdkafka": confluent_kafka.libversion()[0]}

    def check_producer(self, config: Mapping[str, Any]) -> None:
        """Create a producer without a server."""
        with _refused():
            ConfluentProducer(config).close(0)

    def check_consumer(self, config: Mapping[str, Any]) -> None:
        """Create a consumer without a server."""
        with _refused():
            ConfluentConsumer(config, None).abandon()

    def producer(self, config: Mapping[str, Any]) -> ConfluentProducer:
        """Return a new producer."""
        return self._logins.opened(ConfluentProducer(config), config)

    def session(self, config: Mapping[str, Any]) -> ConfluentSession:
        """Return an admin client."""
        return ConfluentSession(config)

    def transactional_producer(self, config: Mapping[str, Any]) -> ConfluentTransactions:
        """Return a new producer."""
        return self._logins.opened(ConfluentTransactions(config), config)

    def consumer(self, config: Mapping[str, Any], on_commit: Committed | None = None) -> ConfluentConsumer:
        """Return a new consumer."""
        return self._logins.opened(ConfluentConsumer(config, on_commit), config)

    def outcome(self, code: ErrorCode) -> SendOutcome:
        """Return the outcome; librdkafka may report any error for a record that is possibly persisted."""
        return send_outcome_of_last_attempt(code)


@contextlib.contextmanager
def _refused() -> Iterator[None]:
    """Raise ConfigError for settings that librdkafka refuses."""
    try:
        yield
    except (TidelogError, TypeError, ValueError) as error:
        text = error.message if isinstance(error, TidelogError) else str(error)
        raise ConfigError(f"confluent-kafka: {text}") from error
