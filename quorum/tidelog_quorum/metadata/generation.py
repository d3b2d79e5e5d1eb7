"""Generations of a metadata log: which quorum of a cluster has written an entry.

A quorum that begins with restored metadata continues the log of its predecessor without the entries that were lost. Its
epochs and offsets therefore begin far above all that the predecessor can have reached, so that nothing from the lost
entries is ever taken for something newer: leader epochs, broker epochs and producer ids. An epoch tells its generation,
so that a process which still has the state of the predecessor notices the change.
"""

from __future__ import annotations

from tidelog_foundation.errors import ErrorCode, error_for

EPOCHS_PER_GENERATION = 1_000_000
"""More elections than a quorum holds: one per second for eleven days."""
OFFSETS_PER_GENERATION = 1_000_000_000_000
"""More entries than a backup can be behind."""
LEADER_EPOCHS_PER_GENERATION = 1_000_000
"""More elections than a partition has had since a backup."""
PRODUCER_IDS_PER_GENERATION = 1_000_000_000
"""More producer ids than brokers have got since a backup."""
MAX_EPOCH = 2**31 - 1


def generation_of(epoch: int) -> int:
    """Return the generation of an epoch of the metadata log; 0 for the first quorum of a cluster."""
    return epoch // EPOCHS_PER_GENERATION


def first_epoch_after(epoch: int) -> int:
    """Return the epoch with which the generation after that of ``epoch`` begins.

    Raises:
        TidelogError: INVALID_REQUEST, no generation is left.
    """
    following = (generation_of(max(0, epoch)) + 1) * EPOCHS_PER_GENERATION
    if following + EPOCHS_PER_GENERATION > MAX_EPOCH:
        text = f"epoch {epoch} leaves no room for another quorum: epochs end at {MAX_EPOCH}"
        raise error_for(ErrorCode.INVALID_REQUEST, text)
    return following
