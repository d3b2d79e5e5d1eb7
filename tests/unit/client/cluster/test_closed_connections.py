"""A client that is closed connects to no address again, even if its last error is kept."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tidelog import AdminClient, KafkaException

_QUIET_S = 0.5
"""Longer than the longest pause between two connection attempts."""


class Doorman:
    """Accepts connections at an address, counts them, and closes them at once."""

    def __init__(self, listener: socket.socket) -> None:
        self.accepted = 0
        self._listener = listener
        self.address = f"127.0.0.1:{listener.getsockname()[1]}"

    def run(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            self.accepted += 1
            connection.close()


@contextmanager
def doorman() -> Iterator[Doorman]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        made = Doorman(listener)
        thread = threading.Thread(target=made.run)
        thread.start()
        try:
            yield made
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            thread.join()


def test_closed_client_does_not_connect_again_while_its_error_is_kept() -> None:
    with doorman() as made:
        with AdminClient({"bootstrap.servers": made.address}) as admin, pytest.raises(KafkaException) as refused:
            admin.list_topics(timeout=0.5)
        before = made.accepted
        assert before > 0
        time.sleep(_QUIET_S)
        # One attempt may have been in progress at the end.
        assert made.accepted <= before + 1, refused.value
