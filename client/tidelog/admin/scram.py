"""Users' SCRAM credentials, with confluent-kafka's names (KIP-554). Passwords are salted here and never sent."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Sequence
from typing import Any, overload

from tidelog.admin.operations import Future, Operations, Outcomes, change_timeout_ms
from tidelog.admin.resources import ScramMechanism
from tidelog.cluster.answers import error_of
from tidelog.v1 import admin_service_pb2 as pb
from tidelog.v1 import common_pb2 as common_pb
from tidelog_foundation.sasl.scram_credentials import MAX_ITERATIONS, SALT_BYTES, salted_password
from tidelog_foundation.sasl.scram_credentials import ScramMechanism as Mechanism


class ScramCredentialInfo:
    """A credential's mechanism and its number of iterations."""

    def __init__(self, mechanism: ScramMechanism, iterations: int) -> None:
        self.mechanism = mechanism
        self.iterations = iterations


class UserScramCredentialsDescription:
    """The credentials of a user."""

    def __init__(self, user: str, scram_credential_infos: Sequence[ScramCredentialInfo]) -> None:
        self.user = user
        self.scram_credential_infos = list(scram_credential_infos)


class UserScramCredentialAlteration:
    """A change of a user's credentials."""

    def __init__(self, user: str) -> None:
        self.user = user


class UserScramCredentialUpsertion(UserScramCredentialAlteration):
    """A credential to set; without a ``salt``, a random one is used."""

    def __init__(
        self, user: str, scram_credential_info: ScramCredentialInfo, password: bytes, salt: bytes | None = None
    ) -> None:
        super().__init__(user)
        self.scram_credential_info = scram_credential_info
        self.password = password
        self.salt = salt


class UserScramCredentialDeletion(UserScramCredentialAlteration):
    """A credential to delete."""

    def __init__(self, user: str, mechanism: ScramMechanism) -> None:
        super().__init__(user)
        self.mechanism = mechanism


class ScramAdmin(Operations):
    """Operations on the users' SCRAM credentials."""

    @overload
    def describe_user_scram_credentials(
        self, users: None = None, *, request_timeout: float | None = None
    ) -> Future[dict[str, UserScramCredentialsDescription]]: ...

    @overload
    def describe_user_scram_credentials(
        self, users: list[str], *, request_timeout: float | None = None
    ) -> dict[str, Future[UserScramCredentialsDescription]]: ...

    def describe_user_scram_credentials(
        self, users: list[str] | None = None, *, request_timeout: float | None = None
    ) -> Any:
        """Return a future for each user, or for all users (None) one future of a dictionary. It has no secrets.

        ``request_timeout`` is in seconds. A user's future fails with KafkaException: RESOURCE_NOT_FOUND if the user has
        no credentials; DUPLICATE_RESOURCE if the user is named twice.

        Raises:
            TypeError: ``users`` is not a list of strings.
            ValueError: A user's name is empty.
        """
        wanted = _checked_users(users)
        request = pb.DescribeUserScramCredentialsRequest(users=wanted)

        async def describe() -> Outcomes[str, UserScramCredentialsDescription]:
            response = await self._ask(
                lambda c, t: c.admin.DescribeUserScramCredentials(request, timeout=t), request_timeout
            )
            return {result.user: error_of(result) or _description(result) for result in response.results}

        if users is None:
            return self._future(describe())
        return self._futures(list(dict.fromkeys(wanted)), describe())

    def alter_user_scram_credentials(
        self, alterations: list[UserScramCredentialAlteration], *, request_timeout: float | None = None
    ) -> dict[str, Future[None]]:
        """Change credentials, and return a future for each user. ``request_timeout`` is in seconds.

        A future fails with KafkaException: UNACCEPTABLE_CREDENTIAL if the number of iterations is below 4096 or above
        16384; RESOURCE_NOT_FOUND if a credential to delete does not exist; DUPLICATE_RESOURCE if the user is named
        twice; UNSUPPORTED_SASL_MECHANISM.

        Raises:
            TypeError: ``alterations`` is not a list of alterations, or a part of one has another type.
            ValueError: There is no alteration, or a user, a password or a salt is empty.
        """
        _check_alterations(alterations)
        deletions = [
            pb.ScramCredentialDeletion(name=each.user, mechanism=_number(each.mechanism))
            for each in alterations
            if isinstance(each, UserScramCredentialDeletion)
        ]
        credentials = [each for each in alterations if isinstance(each, UserScramCredentialUpsertion)]

        async def alter() -> Outcomes[str, None]:
            upsertions = await asyncio.to_thread(lambda: list(map(_upsertion, credentials)))
            request = pb.AlterUserScramCredentialsRequest(
                deletions=deletions, upsertions=upsertions, timeout_ms=change_timeout_ms(request_timeout)
            )
            response = await self._change(
                lambda c, t: c.admin.AlterUserScramCredentials(request, timeout=t), request_timeout
            )
            return {result.user: error_of(result) for result in response.results}

        return self._futures(list(dict.fromkeys(each.user for each in alterations)), alter())


def _upsertion(each: UserScramCredentialUpsertion) -> pb.ScramCredentialUpsertion:
    """Return the message of a credential, in milliseconds of CPU time."""
    info = each.scram_credential_info
    mechanism, iterations = Mechanism(info.mechanism.value), info.iterations
    salt = each.salt or secrets.token_bytes(SALT_BYTES)
    # The cluster refuses these, whatever the password.
    is_refused = mechanism is Mechanism.UNKNOWN or iterations > MAX_ITERATIONS
    return pb.ScramCredentialUpsertion(
        name=each.user,
        mechanism=_number(info.mechanism),
        iterations=iterations,
        salt=salt,
        salted_password=b"" if is_refused else salted_password(mechanism, each.password, salt, iterations),
    )


def _number(mechanism: ScramMechanism) -> common_pb.ScramMechanism.ValueType:
    return common_pb.ScramMechanism.ValueType(mechanism.value)


def _description(result: pb.UserScramCredentialsDescription) -> UserScramCredentialsDescription:
    infos = [ScramCredentialInfo(ScramMechanism(info.mechanism), info.iterations) for info in result.credential_infos]
    return UserScramCredentialsDescription(result.user, infos)


def _checked_users(users: object) -> list[str]:
    if users is None:
        return []
    if not isinstance(users, list):
        raise TypeError(f"users must be a list of names, not {type(users).__name__}")
    for user in users:
        _check_user(user)
    return users


def _check_alterations(alterations: object) -> None:
    if not isinstance(alterations, list):
        raise TypeError(f"alterations must be a list, not {type(alterations).__name__}")
    if not alterations:
        raise ValueError("there must be at least one alteration")
    for each in alterations:
        if isinstance(each, UserScramCredentialUpsertion):
            _check_upsertion(each)
        elif isinstance(each, UserScramCredentialDeletion):
            _check_type("mechanism", each.mechanism, ScramMechanism)
        else:
            text = "an alteration must be a UserScramCredentialUpsertion or a UserScramCredentialDeletion"
            raise TypeError(f"{text}, not {type(each).__name__}")
        _check_user(each.user)


def _check_upsertion(each: UserScramCredentialUpsertion) -> None:
    info = each.scram_credential_info
    _check_type("scram_credential_info", info, ScramCredentialInfo)
    _check_type("mechanism", info.mechanism, ScramMechanism)
    _check_type("iterations", info.iterations, int)
    _check_type("password", each.password, bytes)
    if each.salt is not None:
        _check_type("salt", each.salt, bytes)
    for what, value in (("password", each.password), ("salt", each.salt)):
        if value is not None and not value:
            raise ValueError(f"the {what} must not be empty")
    if info.iterations < 1:
        raise ValueError(f"iterations must be positive, not {info.iterations}")


def _check_user(user: object) -> None:
    _check_type("user", user, str)
    if not user:
        raise ValueError("the user's name must not be empty")


def _check_type(what: str, value: object, kind: type) -> None:
    if not isinstance(value, kind):
        raise TypeError(f"{what} must be {kind.__name__}, not {type(value).__name__}")
