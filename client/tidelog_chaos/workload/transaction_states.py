"""The states of a run's transactions and of its group, in words: the diagnosis of a wait that has ended too late."""

from __future__ import annotations

from collections.abc import Iterator

from tidelog.admin import AdminClient
from tidelog_foundation.errors import TidelogError

_TIMEOUT_S = 5.0


def describe_transactions(admin: AdminClient, prefixes: tuple[str, ...], group_id: str | None = None) -> str:
    """Return the states of the transactional ids with one of the prefixes, with open partitions, and of a group."""
    return "; ".join([*_transactions(admin, prefixes), *(() if group_id is None else _group(admin, group_id))])


def _transactions(admin: AdminClient, prefixes: tuple[str, ...]) -> Iterator[str]:
    try:
        listed = admin.list_transactions(request_timeout=_TIMEOUT_S).result(2 * _TIMEOUT_S)
        names = [found.transactional_id for found in listed.valid if found.transactional_id.startswith(prefixes)]
        futures = admin.describe_transactions(names, request_timeout=_TIMEOUT_S)
        yield from (f"the transactions of a node are unknown: {error}" for error in listed.errors)
        for name in sorted(names):
            found = futures[name].result(2 * _TIMEOUT_S)
            open_in = ", ".join(f"{at.topic}-{at.partition}" for at in found.partitions)
            yield f"{name} is {found.state.value}{f' in {open_in}' if open_in else ''}"
    except (TidelogError, TimeoutError) as error:
        yield f"the transactions are unknown: {error or 'no answer'}"


def _group(admin: AdminClient, group_id: str) -> Iterator[str]:
    try:
        [future] = admin.describe_consumer_groups([group_id], request_timeout=_TIMEOUT_S).values()
        found = future.result(2 * _TIMEOUT_S)
        yield f"the group is {found.state.name} with {len(found.members)} members"
    except (TidelogError, TimeoutError) as error:
        yield f"the group is unknown: {error or 'no answer'}"
