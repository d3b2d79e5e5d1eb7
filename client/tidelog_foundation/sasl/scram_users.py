"""The accounts of users for SCRAM, over the stored credentials, with decoys for users that have none.

Every server of a cluster makes the same decoy for a name, from the same credentials, so that asking several servers, or
one before and after a restart, does not tell decoys from credentials. The shapes (size of the salt, number of
iterations) of decoys have the distribution of the users' shapes: a shape says as little about an unknown name as about
a user.
"""

from __future__ import annotations

import hashlib
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Mapping
from itertools import accumulate
from typing import Final, TypeAlias

from tidelog_foundation.dataclass import dataclass
from tidelog_foundation.sasl.scram import ScramAccount
from tidelog_foundation.sasl.scram_credentials import (
    MIN_ITERATIONS,
    SALT_BYTES,
    CredentialKey,
    ScramCredential,
    ScramMechanism,
)
from tidelog_foundation.security.principal import USER, Principal

Credentials: TypeAlias = Mapping[CredentialKey, ScramCredential]
_Shape: TypeAlias = tuple[int, int]
"""The size of a salt and a number of iterations."""
_DRAWN_BYTES: Final = 8


class ScramUsers:
    """The users with credentials. ``credentials`` returns an immutable map, another one after each change."""

    def __init__(self, credentials: Callable[[], Credentials]) -> None:
        self._credentials = credentials
        self._models: tuple[Credentials, dict[ScramMechanism, _Model]] = ({}, {})

    def find(self, mechanism: ScramMechanism, name: str) -> ScramAccount | None:
        """Return the account of a user, or None."""
        credential = self._credentials().get(CredentialKey(name, mechanism))
        return None if credential is None else ScramAccount(Principal(USER, name), credential)

    def decoy(self, mechanism: ScramMechanism, name: str) -> ScramCredential:
        """Return a credential that no password fits, always the same for a name while the first user's is the same."""
        model = self._model(mechanism)
        secret = hashlib.sha512(model.secret + name.encode()).digest()
        size = hashlib.new(mechanism.digest).digest_size
        drawn = hashlib.shake_256(secret + b"shape").digest(_DRAWN_BYTES)
        salt_size, iterations = model.shape(int.from_bytes(drawn))
        stream = hashlib.shake_256(secret).digest(2 * size + salt_size)
        return ScramCredential(stream[2 * size :], stream[:size], stream[size : 2 * size], iterations)

    def _model(self, mechanism: ScramMechanism) -> _Model:
        """Return the model of decoys for a mechanism; made again after a change of the credentials."""
        credentials = self._credentials()
        if self._models[0] is not credentials:
            self._models = (credentials, {})
        models = self._models[1]
        if mechanism not in models:
            models[mechanism] = _Model.of({key: c for key, c in credentials.items() if key.mechanism is mechanism})
        return models[mechanism]


@dataclass(frozen=True, slots=True)
class _Model:
    """The secret and the shapes of decoys. ``ends`` are the numbers of users with each shape or one before it."""

    secret: bytes
    shapes: tuple[_Shape, ...]
    ends: tuple[int, ...]

    @classmethod
    def of(cls, credentials: Credentials) -> _Model:
        """Return the model for the users of one mechanism."""
        if not credentials:
            return cls(b"", ((SALT_BYTES, MIN_ITERATIONS),), (1,))
        first = credentials[min(credentials)]
        counts = sorted(Counter((len(c.salt), c.iterations) for c in credentials.values()).items())
        shapes, numbers = zip(*counts, strict=True)
        return cls(first.stored_key + first.server_key, shapes, tuple(accumulate(numbers)))

    def shape(self, drawn: int) -> _Shape:
        """Return the shape for a number of ``_DRAWN_BYTES``.

        When a user is added or removed, only a part of 1/users of the names gets another shape.
        """
        return self.shapes[bisect_right(self.ends, drawn * self.ends[-1] >> 8 * _DRAWN_BYTES)]
