from __future__ import annotations

import os
import platform
import subprocess
import sys

import pytest

_ROUNDS = 50
_FAULTS_OF_ONE = (2 << 20) // 4096
_PROGRAM = f"""
import resource
from tidelog_foundation.allocator import keep_freed_memory

def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range({_ROUNDS}):
        # Two at a time, as a response and its copy.
        buffers = [bytes(b"x" * (2 << 20)), bytes(b"y" * (2 << 20))]
        del buffers
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

print(keep_freed_memory(16 << 20), faults())
"""

pytestmark = [
    pytest.mark.costly,
    pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="a setting of the GNU C library"),
]


def run(**environment: str) -> tuple[bool, int]:
    known = {name: value for name, value in os.environ.items() if not name.startswith(("MALLOC_", "GLIBC_TUNABLES"))}
    command = [sys.executable, "-c", _PROGRAM]
    done = subprocess.run(command, env={**known, **environment}, capture_output=True, text=True, check=True)
    is_kept, faults = done.stdout.split()
    return is_kept == "True", int(faults)


def test_process_does_not_have_the_pages_of_its_buffers_cleared_again_and_again() -> None:
    is_kept, faults = run()
    assert is_kept
    assert faults < 10 * _FAULTS_OF_ONE


def test_allocator_stays_as_its_operator_has_set_it() -> None:
    is_kept, faults = run(MALLOC_MMAP_THRESHOLD_="131072")
    assert not is_kept
    assert faults > _ROUNDS * _FAULTS_OF_ONE
