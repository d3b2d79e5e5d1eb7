"""A reader's side of a fetch session with one node, which determines the next request (KIP-227), without I/O.

The owner sets what it wants of each partition, and removes partitions; a request names the changes since the last one.
A full request with all partitions is sent first, after every error, and if the node keeps no session. No error can
therefore leave the session's state in doubt. The node answers every :meth:`named <name>` partition.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Generic, NamedTuple, TypeVar

from tidelog_foundation.errors import ErrorCode

K = TypeVar("K")
V = TypeVar("V")

NO_SESSION = 0
FULL_EPOCH = 0
"""The epoch of a request that names all partitions and opens a session."""
FINAL_EPOCH = -1
"""The epoch of a request that closes the session without opening another."""
MAX_EPOCH = 2**31 - 1


class SessionRequest(NamedTuple, Generic[K, V]):
    """A request's session, the partitions to fetch, and the partitions to remove."""

    session_id: int
    epoch: int
    wanted: Mapping[K, V]
    forgotten: Collection[K]

    @property
    def is_full(self) -> bool:
        """True if the request names all partitions."""
        return self.epoch == FULL_EPOCH


class FetchSessionHandler(Generic[K, V]):
    """One session handler per node. One of the three ``take_...`` methods must follow each :meth:`build`.

    ``wanted`` has every partition; the node's session does not know of ``changed`` and ``forgotten`` yet.
    """

    def __init__(self) -> None:
        self._wanted: dict[K, V] = {}
        self._changed: dict[K, None] = {}
        self._forgotten: dict[K, None] = {}
        self._sent: dict[K, V] = {}
        self.was_refused = False
        """True if the node kept no session after the last answer, and probably will not after the next."""
        self.session_id = NO_SESSION
        """The session to continue, 0 without one."""
        self.epoch = FULL_EPOCH
        """The epoch of the next request."""
        self._asked: SessionRequest[K, V] | None = None

    def __len__(self) -> int:
        return len(self._wanted)

    def __contains__(self, key: object) -> bool:
        return key in self._wanted

    def want(self, key: K, value: V) -> None:
        """Fetch a partition with this value from now on."""
        if self._wanted.get(key) != value:
            self._wanted[key] = value
            self.name(key)

    def name(self, key: K) -> None:
        """Name an unchanged partition in the next request too."""
        self._forgotten.pop(key, None)
        self._changed.pop(key, None)
        self._changed[key] = None

    def forget(self, key: K) -> None:
        """Stop fetching a partition."""
        if self._wanted.pop(key, None) is not None:
            self._changed.pop(key, None)
            if key in self._sent:
                self._forgotten[key] = None

    def sent(self, key: K) -> V | None:
        """Return the value last requested of the node for a partition; None if there is none."""
        return self._sent.get(key)

    def keep_only(self, keys: Collection[K]) -> None:
        """Stop fetching all partitions but these."""
        for key in [k for k in self._wanted if k not in keys]:
            self.forget(key)

    def build(self) -> SessionRequest[K, V]:
        """Return the next request."""
        if self.epoch == FULL_EPOCH:
            # The latest changes come last, so that partitions that have waited longer get their records first.
            order = dict.fromkeys(k for k in self._wanted if k not in self._changed) | self._changed
            request = SessionRequest(self.session_id, FULL_EPOCH, {k: self._wanted[k] for k in order}, ())
            self._sent = dict(request.wanted)
        else:
            wanted = {k: self._wanted[k] for k in self._changed}
            request = SessionRequest(self.session_id, self.epoch, wanted, tuple(self._forgotten))
            for key in self._forgotten:
                del self._sent[key]
            self._sent.update(wanted)
        self._changed, self._forgotten = {}, {}
        self._asked = request
        return request

    def take_answer(self, session_id: int, answered: Collection[K]) -> bool:
        """Apply the answer to the last request; return True if it is valid.

        It is invalid if it lacks a partition of a full request, or has one outside the session.
        """
        assert self._asked is not None, "an answer without a request"
        is_whole = not self._asked.is_full or len(answered) == len(self._asked.wanted)
        for key in answered:
            is_whole = is_whole and key in self._sent
        if not is_whole:
            self.take_failure()
        elif session_id == NO_SESSION:
            self.was_refused = True
            self._begin_anew()
        else:
            self.was_refused = False
            self.session_id = session_id
            self.epoch = 1 if self.epoch == MAX_EPOCH else self.epoch + 1
        return is_whole

    def take_error(self, code: ErrorCode) -> None:
        """Apply the node's error for the whole session."""
        if code is ErrorCode.FETCH_SESSION_ID_NOT_FOUND:
            self._begin_anew()
        else:
            self.take_failure()

    def take_failure(self) -> None:
        """Handle a lost request or answer: the node's state is unknown, so the next request closes the session."""
        self.epoch = FULL_EPOCH

    def check_invariants(self) -> None:
        """Assert the invariants of the fields."""
        assert self._changed.keys() <= self._wanted.keys()
        assert not self._forgotten.keys() & self._wanted.keys()
        assert self.epoch == FULL_EPOCH or self.session_id != NO_SESSION
        unnamed = self._wanted.keys() - self._changed.keys()
        assert self.epoch == FULL_EPOCH or unnamed <= self._sent.keys()

    def _begin_anew(self) -> None:
        self.session_id = NO_SESSION
        self.epoch = FULL_EPOCH
