"""Changes of users' SCRAM credentials, as in Kafka's ScramControlManager (KIP-554).

A user is changed or refused by itself. A user that a request names twice is refused. All records of a request are one
atomic entry. The salted passwords of the request become keys; the metadata log never has a password.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TypeAlias

from tidelog_foundation.errors import ErrorCode, TidelogError, error_for
from tidelog_foundation.requests.scram import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
    UserScramCredentialsResult,
)
from tidelog_foundation.sasl.scram_credentials import (
    MAX_ITERATIONS,
    MIN_ITERATIONS,
    CredentialKey,
    ScramMechanism,
    credential_of,
)
from tidelog_quorum.controller.result import Result
from tidelog_quorum.controller.state import ControllerState
from tidelog_quorum.metadata.features import METADATA_VERSION, SECURITY_VERSION
from tidelog_quorum.metadata.image import MetadataImage
from tidelog_quorum.metadata.records import (
    MetadataRecord,
    RemoveUserScramCredentialRecord,
    UserScramCredentialRecord,
)

_Change: TypeAlias = ScramCredentialDeletion | ScramCredentialUpsertion

_MAX_CREDENTIALS = 100_000
"""The largest number of credentials in a cluster."""
_MAX_SIZE = 1_024
"""The most characters of a user's name, and the most bytes of a salt or a salted password."""


def alter_user_scram_credentials(
    state: ControllerState, request: AlterUserScramCredentialsRequest, now_ms: int
) -> Result[AlterUserScramCredentialsResponse]:
    """Change the credentials of the users whose changes are valid.

    Raises:
        TidelogError: POLICY_VIOLATION, the cluster would have too many credentials.
    """
    image = state.latest
    results: dict[str, UserScramCredentialsResult] = {}
    records: dict[str, MetadataRecord] = {}
    changes: Sequence[_Change] = (*request.deletions, *request.upsertions)
    for change in changes:
        known = results.get(change.name)
        if known is not None and known.error is not None:
            continue
        error = _error_of(image, change) if known is None else _duplicate()
        results[change.name] = UserScramCredentialsResult(change.name, error)
        if error is None:
            records[change.name] = _record_of(change)
        else:
            records.pop(change.name, None)
    _check_limit(image, records.values())
    return Result(list(records.values()), AlterUserScramCredentialsResponse(tuple(results.values())))


def _duplicate() -> TidelogError:
    text = "A user credential cannot be altered twice in the same request"
    return error_for(ErrorCode.DUPLICATE_RESOURCE, text)


def _error_of(image: MetadataImage, change: _Change) -> TidelogError | None:
    problem = next(_problems(image, change), None)
    return None if problem is None else error_for(*problem)


def _problems(image: MetadataImage, change: _Change) -> Iterator[tuple[ErrorCode, str]]:
    """Yield what is wrong with a change, in the order of Kafka's checks."""
    unacceptable = ErrorCode.UNACCEPTABLE_CREDENTIAL
    if image.feature_levels.get(METADATA_VERSION, 0) < SECURITY_VERSION:
        yield ErrorCode.UNSUPPORTED_VERSION, "The current metadata.version does not support SCRAM"
    if not change.name:
        yield unacceptable, "Username must not be empty"
    if ScramMechanism(change.mechanism) is ScramMechanism.UNKNOWN:
        yield ErrorCode.UNSUPPORTED_SASL_MECHANISM, "Unknown SCRAM mechanism"
    if isinstance(change, ScramCredentialDeletion):
        if CredentialKey(change.name, change.mechanism) not in image.scram_credentials:
            yield ErrorCode.RESOURCE_NOT_FOUND, "Attempt to delete a user credential that does not exist"
        return
    if change.iterations < MIN_ITERATIONS:
        yield unacceptable, "Too few iterations"
    if change.iterations > MAX_ITERATIONS:
        yield unacceptable, "Too many iterations"
    if not change.salted_password:
        yield unacceptable, "The salted password must not be empty"
    sizes = {"user name": len(change.name), "salt": len(change.salt), "salted password": len(change.salted_password)}
    for what, size in sizes.items():
        if size > _MAX_SIZE:
            yield unacceptable, f"The size of the {what} is {size}, {_MAX_SIZE} is the limit"


def _record_of(change: _Change) -> MetadataRecord:
    if isinstance(change, ScramCredentialDeletion):
        return RemoveUserScramCredentialRecord(change.name, change.mechanism)
    credential = credential_of(change.mechanism, change.salted_password, change.salt, change.iterations)
    return UserScramCredentialRecord.of(CredentialKey(change.name, change.mechanism), credential)


def _check_limit(image: MetadataImage, records: Iterable[MetadataRecord]) -> None:
    new = sum(type(r) is UserScramCredentialRecord and r.key not in image.scram_credentials for r in records)
    if new and len(image.scram_credentials) + new > _MAX_CREDENTIALS:
        text = f"the cluster would have {len(image.scram_credentials) + new} SCRAM credentials, "
        raise error_for(ErrorCode.POLICY_VIOLATION, text + f"{_MAX_CREDENTIALS} are the limit")
