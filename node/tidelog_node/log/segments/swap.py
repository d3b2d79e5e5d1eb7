"""Replaces segments with the cleaned segment made from them, so that a crash leaves the old ones or the new one.

The order of the steps (Kafka's replaceSegments, with one more step for the transaction index):

1. ``.index``, ``.timeindex``, ``.txnindex``, then ``.log`` change from ``.cleaned`` to ``.swap``. The last one commits.
2. The ``.txnindex`` of the first source is renamed to ``.deleted``, because the new segment may have none. The
   directory is synced.
3. The other sources are renamed to ``.deleted``, oldest first. Those that a crash leaves do no harm: they lie above the
   cleaned segment, or :func:`finish_swaps` removes them.
4. The files lose ``.swap``, the indexes first, ``.log`` last, each replacing the first source's. The directory is
   synced.

:func:`finish_swaps` continues wherever a crash stopped this. Without a ``.log.swap`` nothing was committed. With one,
an ``.index.swap`` means that step 4 had not begun, and that a plain ``.txnindex`` is the old one.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from tidelog_node.log.config import LogConfig
from tidelog_node.log.directory.deletion import DelayedDeletion
from tidelog_node.log.disk.files import Files, remove_if_there
from tidelog_node.log.segments.file_names import (
    CLEANED_SUFFIX,
    INDEX_SUFFIX,
    INDEX_SUFFIXES,
    LOG_SUFFIX,
    SWAP_SUFFIX,
    TRANSACTION_INDEX_SUFFIX,
    parse_segment_name,
    segment_name,
)
from tidelog_node.log.segments.segment import Segment

_STEPS = (*INDEX_SUFFIXES, LOG_SUFFIX)


def swap_in(
    files: Files,
    directory: Path,
    cleaned: Segment,
    sources: Sequence[Segment],
    deleted_files: DelayedDeletion,
    due_ms: int,
) -> None:
    """Make ``cleaned``, which begins where the first source does, the only segment of these offsets.

    Its batches and indexes are on the disk. The sources are closed. Raises OSError; a restart must then complete the
    swap.
    """
    _rename(files, cleaned, SWAP_SUFFIX)
    deleted_files.add(sources[0].file_path(TRANSACTION_INDEX_SUFFIX), due_ms)
    files.fsync_directory(directory)
    for source in sources:
        source.close()
    for source in sources[1:]:
        deleted_files.extend((source.file_path(suffix) for suffix in (LOG_SUFFIX, *INDEX_SUFFIXES)), due_ms)
    _rename(files, cleaned, "")
    files.fsync_directory(directory)


def finish_swaps(files: Files, directory: Path, config: LogConfig, names: Sequence[str]) -> Sequence[str]:
    """Complete committed swaps and remove the files of others; ``names`` is the content of the directory.

    Return its content afterwards. Raises OSError.
    """
    parsed = [(name, found) for name in names if (found := parse_segment_name(name))]
    if not any(state for _, (_, _, state) in parsed):
        return names
    committed = sorted(base for _, (base, suffix, state) in parsed if (suffix, state) == (LOG_SUFFIX, SWAP_SUFFIX))
    for name, (base, _, state) in parsed:
        if state == CLEANED_SUFFIX or (state == SWAP_SUFFIX and base not in committed):
            remove_if_there(files, directory / name)
    plain = [found for _, found in parsed if not found[2]]
    swapped = {found[:2] for _, found in parsed if found[2] == SWAP_SUFFIX}
    for base in committed:
        _finish(files, directory, config, base, plain, swapped)
    return files.listdir(directory)


def _finish(
    files: Files,
    directory: Path,
    config: LogConfig,
    base: int,
    plain: Iterable[tuple[int, str, str]],
    swapped: set[tuple[int, str]],
) -> None:
    end_offset = _end_offset(files, directory, config, base)
    for source, suffix, _ in sorted(plain):
        if base < source < end_offset:
            remove_if_there(files, directory / segment_name(source, suffix))
    if (base, INDEX_SUFFIX) in swapped:
        remove_if_there(files, directory / segment_name(base, TRANSACTION_INDEX_SUFFIX))
    for suffix in _STEPS:
        if (base, suffix) in swapped:
            path = directory / segment_name(base, suffix + SWAP_SUFFIX)
            files.rename(path, directory / segment_name(base, suffix))
    files.fsync_directory(directory)


def _end_offset(files: Files, directory: Path, config: LogConfig, base: int) -> int:
    segment = Segment.open(files, directory, base, config, SWAP_SUFFIX)
    try:
        return max((header.next_offset for _, header in segment.headers()), default=base)
    finally:
        segment.close()


def _rename(files: Files, segment: Segment, state: str) -> None:
    for suffix in _STEPS:
        path = segment.file_path(suffix)
        if suffix != TRANSACTION_INDEX_SUFFIX or segment.transaction_index.entries:
            files.rename(path, path.with_name(segment_name(segment.base_offset, suffix + state)))
    segment.renamed(state)
