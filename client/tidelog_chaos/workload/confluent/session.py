"""Admin clients of confluent-kafka, with which a run tries logins."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Self

import confluent_kafka
from confluent_kafka.admin import AdminClient

from tidelog_chaos.workload.confluent.values import silence, translated
from tidelog_foundation.errors import TidelogError

_TIMEOUT_S: Final = 5.0


class ConfluentSession:
    """A connected client, used by one thread."""

    def __init__(self, config: Mapping[str, Any]) -> None:
        self._is_refused = False
        with translated():
            given: dict[str, Any] = {**silence(config), **config, "error_cb": self._note}
            self._admin = AdminClient(given)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        del self._admin

    def topics(self) -> int | None:
        """Return the number of topics that the user may see, or None if the login is refused."""
        self._is_refused = False
        try:
            with translated():
                return len(self._admin.list_topics(timeout=_TIMEOUT_S).topics)
        except TidelogError:
            self._admin.poll(0)
            if self._is_refused:
                return None
            raise

    def _note(self, error: confluent_kafka.KafkaError) -> None:
        self._is_refused |= error.code() == confluent_kafka.KafkaError._AUTHENTICATION
