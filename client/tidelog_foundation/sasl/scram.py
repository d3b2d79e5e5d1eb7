"""SCRAM-SHA-256 and SCRAM-SHA-512 (RFC 5802, RFC 7677) as in Kafka: no channel binding, passwords without SASLprep.

A client with the extension ``tokenauth=true`` authenticates with a delegation token (KIP-48). An exchange for a user
without a credential takes the same steps as one with a wrong password: the server sends a decoy's salt, and refuses the
proof. Kafka refuses such a user at the first message, and so reveals the names of users.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Callable, Mapping
from dataclasses import field
from typing import Final, Protocol

from tidelog_foundation.dataclass import dataclass
from tidelog_foundation.sasl.mechanism import Authenticated, AuthenticationFailed, Challenge, SaslContext
from tidelog_foundation.sasl.scram_credentials import (
    MAX_ITERATIONS,
    MIN_ITERATIONS,
    ScramCredential,
    ScramMechanism,
    client_key,
    salted_password,
    server_key,
)
from tidelog_foundation.sasl.scram_messages import (
    ClientFinal,
    ClientFirst,
    MalformedMessage,
    ServerFinal,
    ServerFirst,
    client_final,
    client_final_unsigned,
    client_first,
    server_final,
)
from tidelog_foundation.security.principal import Principal

TOKEN_AUTH: Final = "tokenauth"
"""The extension of a client that uses a delegation token: its name is the token's id, its password the token's HMAC."""

_SHOWN_CHARACTERS: Final = 100


@dataclass(frozen=True, slots=True)
class ScramAccount:
    """A credential and the principal that it authenticates, until ``expires_at_ms`` since 1970 if that is given."""

    principal: Principal
    credential: ScramCredential
    expires_at_ms: int | None = None


class ScramAccounts(Protocol):
    """The accounts of a server: of users, or of delegation tokens."""

    def find(self, mechanism: ScramMechanism, name: str) -> ScramAccount | None:
        """Return the account with a name, or None."""

    def decoy(self, mechanism: ScramMechanism, name: str) -> ScramCredential:
        """Return a credential that no password fits, like those of accounts and always the same for a name."""


@dataclass(frozen=True, slots=True)
class ScramSaslMechanism:
    """The server's mechanism. ``new_nonce`` returns a random printable text without commas, of 128 bits or more."""

    mechanism: ScramMechanism
    users: ScramAccounts
    tokens: ScramAccounts
    new_nonce: Callable[[], str]

    @property
    def name(self) -> str:
        """Its registered name."""
        return self.mechanism.sasl_name

    def server(self, context: SaslContext) -> ScramServer:
        """Begin an exchange."""
        return ScramServer(self.mechanism, self.users, self.tokens, self.new_nonce())


class ScramServer:
    """The server's side of one exchange: client-first, then client-final."""

    def __init__(
        self, mechanism: ScramMechanism, users: ScramAccounts, tokens: ScramAccounts, server_nonce: str
    ) -> None:
        self._mechanism = mechanism
        self._users = users
        self._tokens = tokens
        self._server_nonce = server_nonce
        self._pending: _PendingProof | None = None

    def evaluate(self, token: bytes, now_ms: int) -> Challenge | Authenticated:
        """Return the answer to the client's next message.

        Raises:
            AuthenticationFailed: The message is malformed, or the proof is wrong.
        """
        try:
            if self._pending is None:
                return self._begin(ClientFirst.parse(token))
            pending, self._pending = self._pending, None
            accounts = self._tokens if pending.is_token else self._users
            current = accounts.find(self._mechanism, pending.message.name)
            return pending.verify(self._mechanism, ClientFinal.parse(token), current, now_ms)
        except MalformedMessage as error:
            raise AuthenticationFailed(str(error)) from error

    def _begin(self, message: ClientFirst) -> Challenge:
        if message.authorization_id not in ("", message.name):
            text = "Authentication failed: Client requested an authorization id that is different from username"
            raise AuthenticationFailed(f"user {_shown(message.name)} asks for another authorization id", text)
        is_token = message.extensions.get(TOKEN_AUTH, "").lower() == "true"
        accounts = self._tokens if is_token else self._users
        account, decoy = accounts.find(self._mechanism, message.name), accounts.decoy(self._mechanism, message.name)
        credential = decoy if account is None else account.credential
        challenge = ServerFirst.of(message.nonce + self._server_nonce, credential.salt, credential.iterations)
        self._pending = _PendingProof(message, challenge, account, credential, is_token)
        return Challenge(challenge.text.encode())


@dataclass(frozen=True, slots=True)
class _PendingProof:
    """The first messages of an exchange, whose proof is awaited. ``credential`` is a decoy if ``account`` is None."""

    message: ClientFirst
    challenge: ServerFirst
    account: ScramAccount | None
    credential: ScramCredential
    is_token: bool

    def verify(
        self, mechanism: ScramMechanism, final: ClientFinal, current: ScramAccount | None, now_ms: int
    ) -> Authenticated:
        """Return the success that the client's final message proves.

        ``current`` is the account as it is now. Kafka accepts a login that began before the user was removed or got
        another password.

        Raises:
            AuthenticationFailed: It does not prove it.
        """
        who = f"{'delegation token' if self.is_token else 'user'} {_shown(self.message.name)}"
        if final.nonce != self.challenge.nonce:
            raise AuthenticationFailed(f"wrong nonce of {who}: {self._fault_of(final.nonce)}")
        if final.binding != self.message.gs2.encode():
            raise AuthenticationFailed(f"the channel binding of {who} is not that of the first message")
        signed = _signed(self.message.bare, self.challenge.text, final.unsigned)
        is_proven = _is_proof(mechanism, self.credential.stored_key, signed, final.proof)
        if self.account is None:
            raise AuthenticationFailed(f"there is no {who} with a credential for {mechanism.sasl_name}")
        if not is_proven:
            raise AuthenticationFailed(f"wrong password of {who}")
        if current is None or current.credential != self.account.credential:
            raise AuthenticationFailed(f"the credential of {who} was removed or changed during the login")
        expires_at_ms = current.expires_at_ms
        if expires_at_ms is not None and expires_at_ms <= now_ms:
            raise AuthenticationFailed(f"{who} has expired")
        signature = hmac.digest(self.credential.server_key, signed, mechanism.digest)
        return Authenticated(current.principal, server_final(signature), expires_at_ms, self.is_token)

    def _fault_of(self, nonce: str) -> str:
        if nonce == self.message.nonce + self.challenge.nonce:
            return "the client's own nonce is there twice, as librdkafka before 2.6.1 sends it"
        return "it is not that of the challenge"


@dataclass(frozen=True, slots=True)
class ScramLogin:
    """The credentials of a client. ``extensions`` may be ``{"tokenauth": "true"}``.

    The salted password of the last exchange is kept, so that only the first login at a cluster costs milliseconds.
    """

    scram: ScramMechanism
    username: str
    password: str = field(repr=False)
    new_nonce: Callable[[], str]
    extensions: Mapping[str, str] = field(default_factory=dict)
    _salted: dict[tuple[bytes, int], bytes] = field(default_factory=dict, init=False, repr=False, compare=False)

    @property
    def mechanism(self) -> str:
        """The mechanism's registered name."""
        return self.scram.sasl_name

    def client(self, host: str) -> ScramClient:
        """Begin an exchange."""
        return ScramClient(self.scram, self.username, self._salt, self.new_nonce(), self.extensions)

    def _salt(self, salt: bytes, iterations: int) -> bytes:
        if (salt, iterations) not in self._salted:
            salted = salted_password(self.scram, self.password.encode(), salt, iterations)
            self._salted.clear()
            self._salted[salt, iterations] = salted
        return self._salted[salt, iterations]


class ScramClient:
    """The client's side of one exchange: first message, proof, then verification of the server.

    ``salt`` returns the salted password for a salt and a number of iterations.
    """

    def __init__(
        self,
        mechanism: ScramMechanism,
        username: str,
        salt: Callable[[bytes, int], bytes],
        nonce: str,
        extensions: Mapping[str, str] | None = None,
    ) -> None:
        self.is_complete = False
        self._mechanism = mechanism
        self._salt = salt
        self._nonce = nonce
        self._gs2, self._bare = client_first(username, nonce, extensions or {})
        self._signature: bytes | None = None

    def first(self) -> bytes:
        """Return the client's first message."""
        return (self._gs2 + self._bare).encode()

    def evaluate(self, challenge: bytes) -> bytes | None:
        """Return the client's final message, then None.

        Raises:
            AuthenticationFailed: The server's message is malformed, demands a number of iterations that Kafka does not
                permit, reports an error, or does not prove that the server knows the credential.
        """
        try:
            if self._signature is None:
                return self._prove(ServerFirst.parse(challenge))
            self._verify(ServerFinal.parse(challenge), self._signature)
        except MalformedMessage as error:
            raise AuthenticationFailed(str(error)) from error
        self.is_complete = True
        return None

    def _prove(self, challenge: ServerFirst) -> bytes:
        if not challenge.nonce.startswith(self._nonce) or challenge.nonce == self._nonce:
            raise AuthenticationFailed("the server's nonce does not extend the client's")
        if not MIN_ITERATIONS <= challenge.iterations <= MAX_ITERATIONS:
            text = f"the server demands {challenge.iterations} iterations, not {MIN_ITERATIONS} to {MAX_ITERATIONS}"
            raise AuthenticationFailed(text)
        salted = self._salt(challenge.salt, challenge.iterations)
        unsigned = client_final_unsigned(self._gs2, challenge.nonce)
        signed = _signed(self._bare, challenge.text, unsigned)
        key = client_key(self._mechanism, salted)
        stored_key = hashlib.new(self._mechanism.digest, key).digest()
        self._signature = hmac.digest(server_key(self._mechanism, salted), signed, self._mechanism.digest)
        return client_final(unsigned, _xor(key, hmac.digest(stored_key, signed, self._mechanism.digest)))

    def _verify(self, final: ServerFinal, expected: bytes) -> None:
        if final.error is not None:
            raise AuthenticationFailed(f"the server reports the error {final.error!r}")
        if not hmac.compare_digest(final.signature, expected):
            raise AuthenticationFailed("the server does not know the credential: its signature is wrong")


def _shown(name: str) -> str:
    """Return a name for a log line, which it must neither end nor fill."""
    return repr(name if len(name) <= _SHOWN_CHARACTERS else f"{name[:_SHOWN_CHARACTERS]}...")


def _signed(bare: str, server_first: str, unsigned: str) -> bytes:
    """Return the text that both sides sign (RFC 5802, section 3: AuthMessage)."""
    return f"{bare},{server_first},{unsigned}".encode()


def _is_proof(mechanism: ScramMechanism, stored_key: bytes, signed: bytes, proof: bytes) -> bool:
    signature = hmac.digest(stored_key, signed, mechanism.digest)
    if len(proof) != len(signature):
        return False
    key = _xor(proof, signature)
    return hmac.compare_digest(hashlib.new(mechanism.digest, key).digest(), stored_key)


def _xor(left: bytes, right: bytes) -> bytes:
    return bytes(a ^ b for a, b in zip(left, right, strict=True))
