"""Access rules and SCRAM credentials, with confluent-kafka's names. The types exist; the operations fail.

Programs that set up a cluster import these names even if they never use them. Tidelog has no authentication or
authorization yet, so every operation fails with a text that says so.
"""

from __future__ import annotations

import enum
import functools
from collections.abc import Hashable, Iterable, Sequence
from typing import Any, ClassVar, TypeVar

from tidelog.admin.operations import Future, Operations
from tidelog.admin.resources import AclOperation, AclPermissionType, ResourcePatternType, ResourceType, ScramMechanism
from tidelog_foundation.errors import ErrorCode, TidelogError, error_for

K = TypeVar("K", bound=Hashable)
E = TypeVar("E", bound=enum.Enum)


@functools.total_ordering
class AclBinding:
    """An ACL: it allows or denies a principal, from a host, an operation on resources (KIP-11).

    Types can be members, their names or their numbers. Two ACLs are equal if all their parts are.
    """

    _FORBIDDEN: ClassVar[frozenset[enum.Enum]] = frozenset(
        (
            ResourceType.ANY,
            ResourcePatternType.ANY,
            ResourcePatternType.MATCH,
            AclOperation.ANY,
            AclPermissionType.ANY,
        )
    )
    _OPTIONAL: ClassVar[frozenset[str]] = frozenset()

    def __init__(
        self,
        restype: ResourceType | str | int,
        name: str | None,
        resource_pattern_type: ResourcePatternType | str | int,
        principal: str | None,
        host: str | None,
        operation: AclOperation | str | int,
        permission_type: AclPermissionType | str | int,
    ) -> None:
        """Create a rule.

        Raises:
            ValueError: a part is missing, or is not a type that a rule can have.
            TypeError: ``name``, ``principal`` or ``host`` is not a string.
        """
        self.restype = self._member("restype", ResourceType, restype)
        self.name = self._text("name", name)
        self.resource_pattern_type = self._member("resource_pattern_type", ResourcePatternType, resource_pattern_type)
        self.principal = self._text("principal", principal)
        self.host = self._text("host", host)
        self.operation = self._member("operation", AclOperation, operation)
        self.permission_type = self._member("permission_type", AclPermissionType, permission_type)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({','.join(map(str, self._parts()))})"

    def __hash__(self) -> int:
        return hash(self._parts())

    def __eq__(self, other: object) -> bool:
        return self._parts() == other._parts() if isinstance(other, AclBinding) else NotImplemented

    def __lt__(self, other: object) -> bool:
        return self._parts() < other._parts() if isinstance(other, AclBinding) else NotImplemented

    def _parts(self) -> tuple[Any, ...]:
        where = (self.restype, self.name, self.resource_pattern_type)
        return (*where, self.principal, self.host, self.operation, self.permission_type)

    def _text(self, what: str, value: str | None) -> str | None:
        if value is None and what not in self._OPTIONAL:
            raise ValueError(f"{what} must not be None")
        if value is not None and not isinstance(value, str):
            raise TypeError(f"{what} must be text, not {type(value).__name__}")
        return value

    def _member(self, what: str, kind: type[E], value: object) -> E:
        if value is None:
            raise ValueError(f"{what} must not be None")
        try:
            member = kind[value.upper()] if isinstance(value, str) else kind(value)
        except (KeyError, ValueError) as error:
            raise ValueError(f"{what} must be one of {', '.join(kind.__members__)}, not {value!r}") from error
        if member in self._FORBIDDEN:
            raise ValueError(f"{what} of an {type(self).__name__} must not be {member.name}")
        return member


class AclBindingFilter(AclBinding):
    """A filter of ACLs: None, or the member ANY, matches every value of that part."""

    _FORBIDDEN = frozenset(
        (
            ResourceType.UNKNOWN,
            ResourcePatternType.UNKNOWN,
            AclOperation.UNKNOWN,
            AclPermissionType.UNKNOWN,
        )
    )
    _OPTIONAL = frozenset(("name", "principal", "host"))


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


class SecurityAdmin(Operations):
    """Operations on ACLs and credentials. All of them fail."""

    def create_acls(
        self, acls: Iterable[AclBinding], *, request_timeout: float | None = None
    ) -> dict[AclBinding, Future[None]]:
        """Return futures that fail with SECURITY_DISABLED, as in a Kafka cluster without an authorizer."""
        return self._refused(acls, _no_acls())

    def describe_acls(
        self, acl_binding_filter: AclBindingFilter, *, request_timeout: float | None = None
    ) -> Future[list[AclBinding]]:
        """Return a future that fails with SECURITY_DISABLED."""
        futures: dict[AclBindingFilter, Future[list[AclBinding]]] = self._refused([acl_binding_filter], _no_acls())
        return futures[acl_binding_filter]

    def delete_acls(
        self, acl_binding_filters: Iterable[AclBindingFilter], *, request_timeout: float | None = None
    ) -> dict[AclBindingFilter, Future[list[AclBinding]]]:
        """Return futures that fail with SECURITY_DISABLED."""
        return self._refused(acl_binding_filters, _no_acls())

    def describe_user_scram_credentials(
        self, users: Iterable[str] | None = None, *, request_timeout: float | None = None
    ) -> Any:
        """Return a future for each user, or one future for all users (None); each fails with UNSUPPORTED_VERSION."""
        futures: dict[str, Future[Any]] = self._refused([""] if users is None else users, _no_scram())
        return futures[""] if users is None else futures

    def alter_user_scram_credentials(
        self, alterations: Iterable[UserScramCredentialAlteration], *, request_timeout: float | None = None
    ) -> dict[str, Future[None]]:
        """Return a future for each user; each fails with UNSUPPORTED_VERSION."""
        return self._refused([alteration.user for alteration in alterations], _no_scram())

    def _refused(self, keys: Iterable[K], error: TidelogError) -> dict[K, Future[Any]]:
        self._lifetime.check()
        futures: dict[K, Future[Any]] = {key: Future() for key in keys}
        for future in futures.values():
            future.set_exception(error)
        return futures


def _no_acls() -> TidelogError:
    return error_for(ErrorCode.SECURITY_DISABLED, "there are no access rules: Tidelog has no authorization yet")


def _no_scram() -> TidelogError:
    text = "there are no SCRAM credentials: Tidelog has no authentication yet"
    return error_for(ErrorCode.UNSUPPORTED_VERSION, text)
