"""Few collections of garbage while a server starts."""

from __future__ import annotations

import asyncio
import gc
import subprocess
import sys

from tidelog_foundation import lasting_objects

START = """
import asyncio, gc
from tidelog_foundation import lasting_objects

lasting_objects._START_S = 0.01
before, frozen = gc.get_threshold(), gc.get_freeze_count()


async def start():
    with lasting_objects.few_collections_at_the_start():
        assert gc.get_threshold() > before
        {building}
            lasting = [[number] for number in range(1_000)]
            while gc.get_threshold() != before:
                await asyncio.sleep(0.001)
            {check}
        return lasting


assert len(asyncio.run(start())) == 1_000
assert gc.get_freeze_count() >= frozen + 1_000
assert gc.isenabled()
"""


def run(building: str, check: str) -> None:
    """Run a start in a process of its own, whose objects are excluded."""
    subprocess.run([sys.executable, "-c", START.format(building=building, check=check)], check=True, timeout=60)


def test_start_collects_seldom_and_its_end_excludes_what_has_lasted() -> None:
    run("if True:", "assert gc.get_freeze_count() >= frozen + 1_000")


def test_start_that_ends_while_an_image_is_built_leaves_the_exclusion_to_the_image() -> None:
    run("with lasting_objects.building_lasting_objects():", "assert gc.get_freeze_count() == frozen")


def test_garbage_from_before_an_image_is_not_kept_with_it() -> None:
    code = """
import gc, weakref
from tidelog_foundation import lasting_objects

class Node: ...
gc.collect()
gc.set_threshold(100_000)
node = Node()
node.itself = node
gone = weakref.ref(node)
del node
with lasting_objects.building_lasting_objects():
    assert gone() is None
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_process_that_ends_while_it_starts_collects_as_before() -> None:
    before = gc.get_threshold()

    async def start() -> None:
        with lasting_objects.few_collections_at_the_start():
            assert gc.get_threshold() > before

    asyncio.run(start())
    assert gc.get_threshold() == before
