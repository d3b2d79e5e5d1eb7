"""Every wait of a chaos run has a limit."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import tidelog_chaos

_WAITS = ("join", "wait", "result", "communicate", "get", "acquire")
_IDLE = {
    ("keys.py", "wait"): "the thread that creates topics has nothing to do until it is told",
    ("own_thread.py", "get"): "the thread of a client has nothing to do until it is told",
}
_ROOT = Path(tidelog_chaos.__file__).parent


def _calls() -> Iterator[tuple[str, ast.Call]]:
    for path in sorted(_ROOT.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
                yield path.name, node


def test_wait_of_a_chaos_run_has_a_limit() -> None:
    endless = {
        (name, call.func.attr)
        for name, call in _calls()
        if isinstance(call.func, ast.Attribute) and call.func.attr in _WAITS and not call.args and not call.keywords
    }
    assert endless == _IDLE.keys()


def test_command_of_a_chaos_run_has_a_limit() -> None:
    endless = [
        f"{name}:{call.lineno}"
        for name, call in _calls()
        if ast.unparse(call.func) == "subprocess.run" and "timeout" not in {keyword.arg for keyword in call.keywords}
    ]
    assert endless == []


@pytest.mark.costly
def test_phase_that_goes_on_beyond_its_limit_ends_the_process_with_the_stacks_of_its_threads() -> None:
    program = (
        "import time; from tidelog_chaos import runner; runner._MARGIN_S = 0.1\n"
        "runner._end_process_after(0.1); runner._end_process_after(None); time.sleep(0.3); print('none', flush=True)\n"
        "runner._end_process_after(0.1); time.sleep(30)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (1, "none\n")
    assert "Timeout" in done.stderr
    assert 'File "<string>", line 3 in <module>' in done.stderr
