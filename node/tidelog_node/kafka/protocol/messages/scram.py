"""DescribeUserScramCredentials and AlterUserScramCredentials (KIP-554)."""

from __future__ import annotations

from tidelog_node.kafka.protocol.api_keys import ApiKey
from tidelog_node.kafka.protocol.fields import Message, Structure, array, data, int8, int16, int32, string


class UserName(Structure):
    """A user to describe."""

    name: str = string()


class DescribeUserScramCredentialsRequest(Message, api=ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, versions=(0, 0)):
    """The users to describe; null or none are all."""

    users: list[UserName] | None = array(UserName, nullable=0)


class CredentialInfo(Structure):
    """The public part of a credential."""

    mechanism: int = int8()
    iterations: int = int32()


class DescribeUserScramCredentialsResult(Structure):
    """The credentials of a user, or an error."""

    user: str = string()
    error_code: int = int16()
    error_message: str | None = string(nullable=0)
    credential_infos: list[CredentialInfo] = array(CredentialInfo)


class DescribeUserScramCredentialsResponse(Message, answers=DescribeUserScramCredentialsRequest):
    """One result per user."""

    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable=0)
    results: list[DescribeUserScramCredentialsResult] = array(DescribeUserScramCredentialsResult)


class ScramCredentialDeletion(Structure):
    """A credential to delete."""

    name: str = string()
    mechanism: int = int8()


class ScramCredentialUpsertion(Structure):
    """A credential to create or replace."""

    name: str = string()
    mechanism: int = int8()
    iterations: int = int32()
    salt: bytes | memoryview = data(is_secret=True)
    salted_password: bytes | memoryview = data(is_secret=True)


class AlterUserScramCredentialsRequest(Message, api=ApiKey.ALTER_USER_SCRAM_CREDENTIALS, versions=(0, 0)):
    """The credentials to change."""

    deletions: list[ScramCredentialDeletion] = array(ScramCredentialDeletion)
    upsertions: list[ScramCredentialUpsertion] = array(ScramCredentialUpsertion)


class AlterUserScramCredentialsResult(Structure):
    """The outcome for one user."""

    user: str = string()
    error_code: int = int16()
    error_message: str | None = string(nullable=0)


class AlterUserScramCredentialsResponse(Message, answers=AlterUserScramCredentialsRequest):
    """One result per user."""

    throttle_time_ms: int = int32()
    results: list[AlterUserScramCredentialsResult] = array(AlterUserScramCredentialsResult)
