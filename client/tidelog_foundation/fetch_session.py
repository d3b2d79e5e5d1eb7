"""A reader's side of a fetch session with one node: what the next request must name (KIP-227), without I/O.

The owner says what it wants of each partition, and of which no more; a request names what is new since the last one.
A full request, with all partitions, goes out at first, after every error, and when the node keeps no session; so
nothing has to be agreed on that an error could have left in doubt. Whatever is :meth:`named <name>` is answered.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

from tidelog_foundation.errors import ErrorCode

K = TypeVar("K")
V = TypeVar("V")

NO_SESSION = 0
FULL_EPOCH = 0
"""A request with it names all partitions and asks for a session."""
FINAL_EPOCH = -1
"""A request with it ends the session, and asks for none."""
MAX_EPOCH = 2**31 - 1


@dataclass(frozen=True, slots=True)
class SessionRequest(Generic[K, V]):
    """What a request says: of which session, what is wanted of which partitions, and which are to be forgotten."""

    session_id: int
    epoch: int
    wanted: Mapping[K, V]
    forgotten: Collection[K]

    @property
    def is_full(self) -> bool:
        """Whether all partitions are named."""
        return self.epoch == FULL_EPOCH


class FetchSessionHandler(Generic[K, V]):
    """One per node that is read from. After each :meth:`build` comes one of the three ``take_...``.

    ``wanted`` has every partition; of ``changed`` and ``forgotten`` the node's session does not know yet.
    """

    def __init__(self) -> None:
        self._wanted: dict[K, V] = {}
        self._changed: dict[K, None] = {}
        self._forgotten: dict[K, None] = {}
        self._sent: dict[K, V] = {}
        self._was_refused = False
        self._session_id = NO_SESSION
        self._epoch = FULL_EPOCH
        self._asked: SessionRequest[K, V] | None = None

    def __len__(self) -> int:
        return len(self._wanted)

    def __contains__(self, key: object) -> bool:
        return key in self._wanted

    @property
    def session_id(self) -> int:
        """The session to go on with, 0 without one."""
        return self._session_id

    @property
    def was_refused(self) -> bool:
        """Whether the node kept no session after the last answer, and probably will not after the next."""
        return self._was_refused

    @property
    def epoch(self) -> int:
        """The epoch of the next request."""
        return self._epoch

    def want(self, key: K, value: V) -> None:
        """Fetch a partition so from now on."""
        if self._wanted.get(key) != value:
            self._wanted[key] = value
            self.name(key)

    def name(self, key: K) -> None:
        """Have the next request name a partition, though nothing of it is new."""
        self._forgotten.pop(key, None)
        self._changed.pop(key, None)
        self._changed[key] = None

    def forget(self, key: K) -> None:
        """Fetch a partition no more."""
        if self._wanted.pop(key, None) is not None:
            self._changed.pop(key, None)
            if key in self._sent:
                self._forgotten[key] = None

    def sent(self, key: K) -> V | None:
        """Return what the node was asked of a partition, by the last request or one before; None: nothing."""
        return self._sent.get(key)

    def keep_only(self, keys: Collection[K]) -> None:
        """Fetch no other partitions than these any more."""
        for key in [k for k in self._wanted if k not in keys]:
            self.forget(key)

    def build(self) -> SessionRequest[K, V]:
        """Return what the next request says."""
        if self._epoch == FULL_EPOCH:
            # What was changed last comes last: what has waited longer gets its records first.
            order = dict.fromkeys(k for k in self._wanted if k not in self._changed) | self._changed
            request = SessionRequest(self._session_id, FULL_EPOCH, {k: self._wanted[k] for k in order}, ())
            self._sent = dict(request.wanted)
        else:
            wanted = {k: self._wanted[k] for k in self._changed}
            request = SessionRequest(self._session_id, self._epoch, wanted, tuple(self._forgotten))
            for key in self._forgotten:
                del self._sent[key]
            self._sent.update(wanted)
        self._changed, self._forgotten = {}, {}
        self._asked = request
        return request

    def take_answer(self, session_id: int, answered: Collection[K]) -> bool:
        """Take the answer to the last request; returns whether it may be used.

        It may not when it leaves out a partition of a full request, or has one that is not in the session.
        """
        assert self._asked is not None, "an answer without a request"
        is_whole = all(key in self._sent for key in answered) and (
            not self._asked.is_full or len(answered) == len(self._asked.wanted)
        )
        if not is_whole:
            self.take_failure()
        elif session_id == NO_SESSION:
            self._was_refused = True
            self._begin_anew()
        else:
            self._was_refused = False
            self._session_id = session_id
            self._epoch = 1 if self._epoch == MAX_EPOCH else self._epoch + 1
        return is_whole

    def take_error(self, code: ErrorCode) -> None:
        """Take the node's error of the whole session."""
        if code is ErrorCode.FETCH_SESSION_ID_NOT_FOUND:
            self._begin_anew()
        else:
            self.take_failure()

    def take_failure(self) -> None:
        """The request or its answer was lost: nobody knows what the node has. The next request ends the session."""
        self._epoch = FULL_EPOCH

    def check_invariants(self) -> None:
        """Assert what the class says of its fields."""
        assert self._changed.keys() <= self._wanted.keys()
        assert not self._forgotten.keys() & self._wanted.keys()
        assert self._epoch == FULL_EPOCH or self._session_id != NO_SESSION
        unnamed = self._wanted.keys() - self._changed.keys()
        assert self._epoch == FULL_EPOCH or unnamed <= self._sent.keys()

    def _begin_anew(self) -> None:
        self._session_id = NO_SESSION
        self._epoch = FULL_EPOCH
