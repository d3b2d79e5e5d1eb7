"""Users' SCRAM credentials: this node describes those of its image, and the leading controller changes them."""

from __future__ import annotations

import asyncio

from tidelog_foundation.requests import scram as requests
from tidelog_foundation.sasl.scram_credentials import CredentialKey
from tidelog_foundation.time_slices import TimeSlices
from tidelog_node.handlers.context import NodeContext, forward_change
from tidelog_quorum.metadata.description import describe_user_scram_credentials as describe
from tidelog_quorum.metadata.image import MetadataImage

_MANY = 1_000
"""More credentials are described in a thread, because that takes more than a few milliseconds."""


async def describe_user_scram_credentials(
    context: NodeContext, request: requests.DescribeUserScramCredentialsRequest
) -> requests.DescribeUserScramCredentialsResponse:
    """Return the credentials of users, without secrets."""
    image = context.metadata.image
    if max(len(image.scram_credentials), len(request.users)) > _MANY:
        return await asyncio.to_thread(describe, image, request)
    return describe(image, request)


async def alter_user_scram_credentials(
    context: NodeContext, request: requests.AlterUserScramCredentialsRequest
) -> requests.AlterUserScramCredentialsResponse:
    """Change credentials, and wait until this node's image has the changes.

    Raises:
        TidelogError: An error of the leading controller that concerns all of them.
    """
    response, remaining_s = await forward_change(context, request)
    slices = TimeSlices()
    changed = {result.user async for result in slices.of(response.results) if result.error is None}
    deleted = {_key(each) async for each in slices.of(request.deletions) if each.name in changed}
    salts = {_key(each): each.salt async for each in slices.of(request.upsertions) if each.name in changed}

    def is_applied(image: MetadataImage) -> bool:
        found = image.scram_credentials
        has_all = all(key in found and found[key].salt == salt for key, salt in salts.items())
        return has_all and found.keys().isdisjoint(deleted)

    await context.metadata.wait_until(is_applied, remaining_s)
    return response


def _key(each: requests.ScramCredentialDeletion | requests.ScramCredentialUpsertion) -> CredentialKey:
    return CredentialKey(each.name, each.mechanism)
