"""The users of a cluster with SASL: that of the run's clients, whose password changes, and one whose rights end.

A changed password must disturb no client that is told of it, and :meth:`RunUsers.faults` finds a cluster that accepts a
former password, or leaves a revoked user its rights. It is called when no fault is active.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Final

from tidelog.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialAlteration,
    UserScramCredentialDeletion,
    UserScramCredentialUpsertion,
)
from tidelog_chaos.background import BackgroundThread
from tidelog_chaos.workload.library import Library
from tidelog_foundation.errors import TidelogError

REAUTHENTICATION_MS: Final = 5_000
"""The lifetime of sessions in secured runs (connections.max.reauth.ms)."""
_TIMEOUT_S: Final = 5.0
_CONFIRMED_S: Final = 60.0
_TAKES_EFFECT_S: Final = 10.0
"""The time in which all nodes that are connected know of a change; the documented time is well below it."""
_PAUSE_S: Final = 0.2
_CLIENTS, _OTHER, _REVOKED = "chaos-clients", "chaos-other-user", "chaos-revoked-user"
_INFO: Final = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096)
_RIGHTS: Final = (ResourceType.TOPIC, ResourceType.GROUP, ResourceType.TRANSACTIONAL_ID, ResourceType.BROKER)
_CLUSTER_NAME: Final = "kafka-cluster"
_MOST_FORMER: Final = 3

Told = Callable[[str, str], object]
"""Receives the name and the new password of the clients' user."""


class RunUsers:
    """The users of one run, changed by the administrator with the given settings. Used by one thread at a time."""

    def __init__(self, admin_settings: Mapping[str, str]) -> None:
        self._admin_settings = admin_settings
        self._password = secrets.token_hex(16)
        self._former: list[str] = []
        self._change: _PasswordChange | None = None
        self.on_change: Told = lambda *_: None
        """Called with each new password, after the cluster has it."""

    def create(self) -> None:
        """Create the clients' user with all rights.

        Raises:
            TidelogError, TimeoutError: The cluster did not answer.
        """
        with AdminClient(self._admin_settings) as admin:
            _allow(admin, _CLIENTS, _RIGHTS)
            _upsert(admin, _CLIENTS, self._password)
        settings = self.client_settings(self._admin_settings)
        _wait_until(lambda: _can_connect(settings), _TAKES_EFFECT_S)

    def client_settings(self, settings: Mapping[str, str]) -> dict[str, str]:
        """Return the administrator's settings with the login of the clients' user."""
        return _as_user(settings, _CLIENTS, self._password)

    def change(self, kind: str) -> str | None:
        """Change a credential, as :meth:`FaultDriver.change_credentials`."""
        with AdminClient(self._admin_settings) as admin:
            match kind:
                case "new-password":
                    return self._change_password()
                case "same-password":
                    done = _is_done(lambda: _upsert(admin, _CLIENTS, self._password))
                    return "another salt for the password of the clients' user" if done else None
            done = _is_done(lambda: _upsert(admin, _OTHER, secrets.token_hex(16)))
            return "another user's credential" if done and _is_done(lambda: _delete(admin, _OTHER)) else None

    def faults(self, library: Library, servers: Iterable[str], settings: Mapping[str, str]) -> list[str]:
        """Return what is wrong with logins at each of the ``servers``, as sentences.

        ``settings`` are the administrator's with which the library connects. Call it while no fault is active.
        """
        self._end_change()
        with AdminClient(self._admin_settings) as admin:
            found = []
            for server in servers:
                found += self._faults_of(library, {**settings, "bootstrap.servers": server}, server)
            return found + _faults_of_revocation(admin, library, settings)

    def _faults_of(self, library: Library, settings: Mapping[str, str], server: str) -> list[str]:
        def is_accepted(password: str) -> bool:
            with library.session(_as_user(settings, _CLIENTS, password)) as session:
                return session.topics() is not None

        found = []
        if not _wait_until(lambda: is_accepted(self._password), _TAKES_EFFECT_S):
            found.append(f"{server} does not accept the current password of {_CLIENTS}")
        former = self._former[-_MOST_FORMER:]
        if not _wait_until(lambda: not any(map(is_accepted, former)), _TAKES_EFFECT_S):
            found.append(f"{server} accepts a former password of {_CLIENTS}")
        return found

    def close(self) -> None:
        """Give up a change that the cluster has not confirmed."""
        if self._change is not None:
            self._change.stop()

    def _change_password(self) -> str | None:
        """Begin a change, which may last as long as the cluster has no leading controller; there is one at a time."""
        if self._change is not None and self._change.is_under_way:
            return None
        self._former.append(self._password)
        self._password = secrets.token_hex(16)
        self._change = _PasswordChange(self._admin_settings, self._password, self.on_change)
        self._change.start()
        return "a new password of the clients' user"

    def _end_change(self) -> None:
        """Wait for the change in progress.

        Raises:
            TimeoutError: The cluster did not confirm it.
        """
        change = self._change
        if change is not None and not _wait_until(lambda: not change.is_under_way, _CONFIRMED_S):
            raise TimeoutError(f"the cluster did not confirm a new password within {_CONFIRMED_S:g} s")


class _PasswordChange(BackgroundThread):
    """Alters the password of the clients' user until the cluster confirms it, and then tells the clients.

    An unconfirmed change may have been made, so that no other one may take its place.
    """

    def __init__(self, admin_settings: Mapping[str, str], password: str, told: Told) -> None:
        super().__init__("password-change")
        self._admin_settings = admin_settings
        self._password = password
        self._told = told

    @property
    def is_under_way(self) -> bool:
        """True until the clients are told."""
        return self._thread.is_alive()

    def _run(self) -> None:
        with AdminClient(self._admin_settings) as admin:
            while not self._stopping.is_set():
                if _is_done(lambda: _upsert(admin, _CLIENTS, self._password)):
                    self._told(_CLIENTS, self._password)
                    return
                self._stopping.wait(_PAUSE_S)


def _faults_of_revocation(admin: AdminClient, library: Library, settings: Mapping[str, str]) -> list[str]:
    """Return what is wrong with a connected user who loses an ACL and then the credential."""
    password = secrets.token_hex(16)
    _allow(admin, _REVOKED, (ResourceType.TOPIC,))
    _upsert(admin, _REVOKED, password)
    with library.session(_as_user(settings, _REVOKED, password)) as session:
        if not _wait_until(lambda: bool(session.topics()), _TAKES_EFFECT_S):
            return [f"{_REVOKED} sees no topic in spite of its ACL"]
        found = []
        admin.delete_acls([_acls_of(_REVOKED)])[_acls_of(_REVOKED)].result(_TIMEOUT_S)
        if not _wait_until(lambda: not session.topics(), _TAKES_EFFECT_S):
            found.append(f"{_REVOKED} sees topics {_TAKES_EFFECT_S:g} s after its ACL was deleted")
        _delete(admin, _REVOKED)
        limit_s = REAUTHENTICATION_MS / 1000 + _TAKES_EFFECT_S
        if not _wait_until(lambda: session.topics() is None, limit_s):
            found.append(f"the session of {_REVOKED} lasts {limit_s:g} s after the user was deleted")
        return found


def _as_user(settings: Mapping[str, str], user: str, password: str) -> dict[str, str]:
    return {**settings, "sasl.username": user, "sasl.password": password}


def _allow(admin: AdminClient, user: str, kinds: Iterable[ResourceType]) -> None:
    bindings = [
        AclBinding(
            kind,
            _CLUSTER_NAME if kind is ResourceType.BROKER else "*",
            ResourcePatternType.LITERAL,
            f"User:{user}",
            "*",
            AclOperation.ALL,
            AclPermissionType.ALLOW,
        )
        for kind in kinds
    ]
    for future in admin.create_acls(bindings).values():
        future.result(_TIMEOUT_S)


def _acls_of(user: str) -> AclBindingFilter:
    kind, pattern = ResourceType.ANY, ResourcePatternType.ANY
    return AclBindingFilter(kind, None, pattern, f"User:{user}", None, AclOperation.ANY, AclPermissionType.ANY)


def _upsert(admin: AdminClient, user: str, password: str) -> None:
    _alter(admin, UserScramCredentialUpsertion(user, _INFO, password.encode()))


def _delete(admin: AdminClient, user: str) -> None:
    _alter(admin, UserScramCredentialDeletion(user, _INFO.mechanism))


def _alter(admin: AdminClient, change: UserScramCredentialAlteration) -> None:
    admin.alter_user_scram_credentials([change])[change.user].result(_TIMEOUT_S)


def _is_done(change: Callable[[], object]) -> bool:
    try:
        change()
    except (TidelogError, TimeoutError):
        return False
    return True


def _can_connect(settings: Mapping[str, str]) -> bool:
    with AdminClient(settings) as admin:
        return _is_done(lambda: admin.list_topics(timeout=_TIMEOUT_S))


def _wait_until(holds: Callable[[], bool], limit_s: float) -> bool:
    """Return True as soon as a condition holds, and False if it does not within the limit."""
    deadline_s = time.monotonic() + limit_s
    while not holds():
        if time.monotonic() >= deadline_s:
            return False
        time.sleep(_PAUSE_S)
    return True
