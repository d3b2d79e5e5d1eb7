"""DescribeUserScramCredentials, answered by this node, and AlterUserScramCredentials, forwarded to the controller.

An error of the whole change becomes the error of each user, in order, as in Kafka's ``getErrorResponse``.
"""

from __future__ import annotations

from tidelog_foundation.errors import TidelogError
from tidelog_foundation.requests import scram as requests
from tidelog_foundation.sasl.scram_credentials import ScramMechanism
from tidelog_foundation.time_slices import TimeSlices
from tidelog_node.handlers import scram as handlers
from tidelog_node.kafka.apis.errors import code_of, text_of
from tidelog_node.kafka.protocol.messages import scram as wire
from tidelog_node.kafka.served import Api, Caller, KafkaNode, MessageApi


async def describe_user_scram_credentials(
    node: KafkaNode, request: wire.DescribeUserScramCredentialsRequest, caller: Caller
) -> wire.DescribeUserScramCredentialsResponse:
    """Describe the credentials of users, without secrets."""
    slices = TimeSlices()
    users = [user.name async for user in slices.of(request.users or ())]
    described = requests.DescribeUserScramCredentialsRequest(tuple(users))
    found = await handlers.describe_user_scram_credentials(node.context, described)
    return wire.DescribeUserScramCredentialsResponse(
        error_message=None, results=[_description(each) async for each in slices.of(found.results)]
    )


async def alter_user_scram_credentials(
    node: KafkaNode, request: wire.AlterUserScramCredentialsRequest, caller: Caller
) -> wire.AlterUserScramCredentialsResponse:
    """Change credentials, those of each user by themselves."""
    slices = TimeSlices()
    deletions = [
        requests.ScramCredentialDeletion(each.name, ScramMechanism(each.mechanism))
        async for each in slices.of(request.deletions)
    ]
    upsertions = [_upsertion(each) async for each in slices.of(request.upsertions)]
    change = requests.AlterUserScramCredentialsRequest(tuple(deletions), tuple(upsertions))
    try:
        results = (await handlers.alter_user_scram_credentials(node.context, change)).results
    except TidelogError as error:
        users = sorted({*(each.name for each in deletions), *(each.name for each in upsertions)})
        results = tuple(requests.UserScramCredentialsResult(user, error) for user in users)
    return wire.AlterUserScramCredentialsResponse(
        results=[
            wire.AlterUserScramCredentialsResult(each.user, code_of(each.error), text_of(each.error))
            async for each in slices.of(results)
        ]
    )


def _upsertion(each: wire.ScramCredentialUpsertion) -> requests.ScramCredentialUpsertion:
    return requests.ScramCredentialUpsertion(
        each.name, ScramMechanism(each.mechanism), each.iterations, bytes(each.salt), bytes(each.salted_password)
    )


def _description(each: requests.UserScramCredentialsDescription) -> wire.DescribeUserScramCredentialsResult:
    infos = [wire.CredentialInfo(info.mechanism, info.iterations) for info in each.credential_infos]
    return wire.DescribeUserScramCredentialsResult(each.user, code_of(each.error), text_of(each.error), infos)


APIS: tuple[Api, ...] = (
    MessageApi(wire.DescribeUserScramCredentialsRequest, describe_user_scram_credentials),
    MessageApi(wire.AlterUserScramCredentialsRequest, alter_user_scram_credentials),
)
