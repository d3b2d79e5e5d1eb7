from __future__ import annotations

import subprocess
import sys

from benchmarks import process

_BURNS = "import time\nwhile time.process_time() < 0.2: pass\nprint(flush=True)\ninput()"
_PARENT = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {_BURNS!r}]); print(flush=True); input()"


def test_cpu_seconds_of_a_tree_count_descendants_that_live_and_those_that_have_ended() -> None:
    command = [sys.executable, "-c", _PARENT]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1) as parent:
        assert parent.stdin is not None
        assert parent.stdout is not None
        parent.stdout.readline()
        while_the_child_lives = process.tree_cpu_seconds(parent.pid), process.cpu_seconds(parent.pid)
        parent.stdin.write("\n")
        parent.stdout.readline()
        after_its_end = process.tree_cpu_seconds(parent.pid), process.cpu_seconds(parent.pid)
        parent.stdin.write("\n")

    for tree, own in (while_the_child_lives, after_its_end):
        # The kernel counts in ticks.
        assert tree > own + 0.15
