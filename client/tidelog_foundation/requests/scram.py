"""Users' credentials for SCRAM (KIP-554). A request has salted passwords, of which a controller stores only keys."""

from __future__ import annotations

from dataclasses import field

from tidelog_foundation.dataclass import dataclass
from tidelog_foundation.errors import TidelogError
from tidelog_foundation.requests.request import Request
from tidelog_foundation.sasl.scram_credentials import ScramMechanism


@dataclass(frozen=True, slots=True)
class ScramCredentialDeletion:
    """The deletion of a user's credential for a mechanism."""

    name: str
    mechanism: ScramMechanism


@dataclass(frozen=True, slots=True)
class ScramCredentialUpsertion:
    """A credential to create or replace."""

    name: str
    mechanism: ScramMechanism
    iterations: int
    salt: bytes = field(repr=False)
    salted_password: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class UserScramCredentialsResult:
    """The outcome for one user."""

    user: str
    error: TidelogError | None = None


@dataclass(frozen=True, slots=True)
class AlterUserScramCredentialsResponse:
    """One result per user, in any order."""

    results: tuple[UserScramCredentialsResult, ...] = ()


@dataclass(frozen=True, slots=True)
class AlterUserScramCredentialsRequest(Request[AlterUserScramCredentialsResponse]):
    """A request to change credentials. A user is changed or refused by itself, and may be named once."""

    deletions: tuple[ScramCredentialDeletion, ...] = ()
    upsertions: tuple[ScramCredentialUpsertion, ...] = ()
    timeout_ms: int = 0


@dataclass(frozen=True, slots=True)
class ScramCredentialInfo:
    """The public part of a credential."""

    mechanism: ScramMechanism
    iterations: int


@dataclass(frozen=True, slots=True)
class UserScramCredentialsDescription:
    """The credentials of a user, by mechanism, or an error."""

    user: str
    error: TidelogError | None = None
    credential_infos: tuple[ScramCredentialInfo, ...] = ()


@dataclass(frozen=True, slots=True)
class DescribeUserScramCredentialsResponse:
    """One description per user, ordered by name."""

    results: tuple[UserScramCredentialsDescription, ...] = ()


@dataclass(frozen=True, slots=True)
class DescribeUserScramCredentialsRequest(Request[DescribeUserScramCredentialsResponse]):
    """A request for the credentials of users; without a name, of all that have any."""

    users: tuple[str, ...] = ()
