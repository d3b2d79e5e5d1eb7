"""The commit of a batch of files: each file appears whole, and a batch that comes again adds nothing.

A batch is written below ``_tidelog``, which readers ignore. Its manifest names the staged files and their places. It is
created in one step and never replaced, so of several attempts at a batch, one decides. Then the files are moved, each
in one step. Whoever finds a manifest finishes its moves. A file that is not staged any more was moved, even if it is
not in its place: readers may delete files as they appear.

The manifest of the last batch stays, as a fence: an attempt at an earlier batch, by a worker that has been replaced,
moves nothing. It may create a manifest, for the old one is deleted, but then sees a later one. A later manifest
is always there, because each is created before earlier ones are deleted.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping

from tidelog_connect.connectors.connector import Batch
from tidelog_connect.connectors.files.store import FileStore

INTERNAL = "_tidelog"
"""The folder of staged files and manifests. Spark ignores names that begin with an underscore."""
_MANIFEST = ".json"
_STAGED = "staged-"

Stage = Callable[[str], Mapping[str, str]]
"""Writes the files of a batch into a folder, and returns their places by their paths in that folder."""


def commit_batch(store: FileStore, batch: Batch, attempt: str, stage: Stage) -> bool:
    """Write a batch, unless it is written already. ``attempt`` is a text that no other attempt has.

    Returns False if a later batch of the query was written: this attempt belongs to a run that has been replaced.

    Raises:
        OSError: the store fails, or a later run has deleted the manifest that this attempt is about to read.
    """
    folder = f"{INTERNAL}/{batch.query}"
    manifest = f"{folder}/{batch.number}{_MANIFEST}"
    written = _written(store, folder)
    if max(written, default=-1) < batch.number:
        staged = f"{folder}/{_STAGED}{batch.number}-{attempt}"
        places = stage(staged)
        moves = {f"{staged}/{path}": place for path, place in sorted(places.items())}
        is_first = store.create(manifest, json.dumps(moves))
        if max(_written(store, folder)) > batch.number:
            if is_first:
                store.delete(manifest)
            store.delete(staged)
            return False
    elif max(written) > batch.number:
        return False
    for path, place in json.loads(store.read(manifest)).items():
        store.move(path, place)
    _clean(store, folder, batch.number)
    return True


def _written(store: FileStore, folder: str) -> list[int]:
    names = [name.removesuffix(_MANIFEST) for name in store.names(folder) if name.endswith(_MANIFEST)]
    return [int(name) for name in names if name.isdecimal()]


def _clean(store: FileStore, folder: str, number: int) -> None:
    """Delete earlier manifests, and all that is staged for this batch and earlier ones."""
    for name in store.names(folder):
        text = name.removesuffix(_MANIFEST) if name.endswith(_MANIFEST) else ""
        if text.isdecimal() and int(text) < number:
            store.delete(f"{folder}/{name}")
        if name.startswith(_STAGED) and int(name.removeprefix(_STAGED).partition("-")[0]) <= number:
            store.delete(f"{folder}/{name}")
