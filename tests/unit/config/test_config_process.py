"""Properties files with overrides, and how a process ends."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tidelog_foundation.config.process import load_properties, ungrouped
from tidelog_foundation.errors import ConfigError, ErrorCode, TidelogError, error_for


def test_load_properties_reads_javas_format_with_overrides_on_top(tmp_path: Path) -> None:
    file = tmp_path / "p"
    file.write_text("# comment\na = 1\nb=long \\\n  value\nlisteners=GRPC://h:1\n")
    assert load_properties(file, ["a=2", "c = x=y "]) == {
        "a": "2",
        "b": "long value",
        "listeners": "GRPC://h:1",
        "c": "x=y",
    }


@pytest.mark.parametrize("override", ["", "a", "=1"])
def test_load_properties_refuses_an_override_without_key_or_value(tmp_path: Path, override: str) -> None:
    file = tmp_path / "p"
    file.write_text("")
    with pytest.raises(ConfigError, match="must be key=value"):
        load_properties(file, [override])


def test_load_properties_names_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="No such file"):
        load_properties(tmp_path / "p")


def test_load_properties_names_a_file_that_is_no_text(tmp_path: Path) -> None:
    file = tmp_path / "p"
    file.write_bytes(b"\xff\xfe\xff")
    with pytest.raises(ConfigError, match="cannot read"):
        load_properties(file)


SCRIPT = """
import sys
from tidelog_foundation.config.process import run_process
from tidelog_foundation.errors import ConfigError, ErrorCode, error_for

async def main(properties):
    if properties["do"] == "refuse":
        raise ConfigError("two\\nlines")
    if properties["do"] == "fail":
        raise error_for(ErrorCode.KAFKA_STORAGE_ERROR, "the disk is full")
    if properties["do"] == "crash":
        raise ZeroDivisionError
    print(properties["do"])

sys.exit(run_process(main))
"""


def run(tmp_path: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    (tmp_path / "p").write_text("do=print")
    (tmp_path / "script.py").write_text(SCRIPT)
    command = [sys.executable, str(tmp_path / "script.py"), *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=20, cwd=tmp_path)


@pytest.mark.costly
def test_run_process_ends_with_0_after_main(tmp_path: Path) -> None:
    ended = run(tmp_path, "p")
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "print\n", "")


@pytest.mark.costly
@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("p", "--override", "do=refuse"), "two lines"),
        (("q",), "q: No such file or directory"),
        (("p", "--override", "x"), 'invalid override "x"'),
        ((), "required: FILE"),
        (("p", "--overrid", "a=b"), "unrecognized arguments"),
    ],
)
def test_run_process_ends_with_2_and_one_line(tmp_path: Path, arguments: tuple[str, ...], text: str) -> None:
    ended = run(tmp_path, *arguments)
    assert ended.returncode == 2
    assert len(ended.stderr.splitlines()) == 1
    assert text in ended.stderr


@pytest.mark.costly
def test_run_process_ends_with_1_and_one_line_when_a_disk_fails(tmp_path: Path) -> None:
    ended = run(tmp_path, "p", "--override", "do=fail")
    assert (ended.returncode, ended.stderr) == (1, "script.py: the disk is full\n")


@pytest.mark.costly
def test_run_process_shows_a_defect_with_its_traceback(tmp_path: Path) -> None:
    ended = run(tmp_path, "p", "--override", "do=crash")
    assert ended.returncode == 1
    assert "ZeroDivisionError" in ended.stderr


SLOW_START = """
import sys
import time
from tidelog_foundation.config.process import run_process

async def main(properties):
    print("starts", flush=True)
    time.sleep(60)  # As an import does, before there is a handler for the signal.

sys.exit(run_process(main))
"""


@pytest.mark.costly
def test_run_process_ends_with_0_when_it_is_told_to_stop_before_it_has_started(tmp_path: Path) -> None:
    (tmp_path / "p").write_text("")
    (tmp_path / "script.py").write_text(SLOW_START)
    command = [sys.executable, str(tmp_path / "script.py"), "p"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=tmp_path) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "starts\n"
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 0


@pytest.mark.costly
@pytest.mark.parametrize("program", ["tidelog_node", "tidelog_quorum"])
def test_process_can_be_told_to_stop_before_its_imports(program: str) -> None:
    """The handler for the signal is set before the import of gRPC, which takes most of the start."""
    code = f"import sys, {program}.__main__; sys.exit(any('.server' in m or m == 'grpc' for m in sys.modules))"
    assert subprocess.run([sys.executable, "-c", code], timeout=20).returncode == 0


def test_ungrouped_lets_the_one_error_of_a_task_group_leave_alone() -> None:
    failure = error_for(ErrorCode.KAFKA_STORAGE_ERROR, "the disk")
    with pytest.raises(TidelogError) as raised, ungrouped():
        raise ExceptionGroup("tasks", [ExceptionGroup("inner", [failure])])
    assert raised.value is failure
    with pytest.raises(ExceptionGroup), ungrouped():
        raise ExceptionGroup("tasks", [failure, KeyError("a defect")])


UNFINISHED = """
import asyncio
import sys
from tidelog_foundation.config.process import run_process
from tidelog_foundation.errors import ErrorCode, error_for

async def rest():
    try:
        for _ in range(5):
            await asyncio.sleep(0)
        print("ended")
    except asyncio.CancelledError:
        print("cancelled")

async def main(properties):
    main.rest = asyncio.create_task(rest())
    if properties["do"] == "fail":
        raise error_for(ErrorCode.KAFKA_STORAGE_ERROR, "the disk is full")

sys.exit(run_process(main))
"""


@pytest.mark.costly
@pytest.mark.parametrize(("do", "code"), [("end", 0), ("fail", 1)])
def test_run_process_lets_tasks_of_libraries_take_their_last_steps(tmp_path: Path, do: str, code: int) -> None:
    (tmp_path / "p").write_text(f"do={do}")
    (tmp_path / "script.py").write_text(UNFINISHED)
    command = [sys.executable, str(tmp_path / "script.py"), "p"]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=20, cwd=tmp_path)
    assert (ended.returncode, ended.stdout) == (code, "ended\n"), ended.stderr


WAITING = """
import asyncio
import signal
import sys
from tidelog_foundation.config.process import run_process

async def main(properties):
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    print("runs", flush=True)
    await stop.wait()
    print("has stopped", flush=True)

sys.exit(run_process(main))
"""


@pytest.mark.costly
def test_supervised_process_stops_in_order_when_its_standard_input_ends(tmp_path: Path) -> None:
    (tmp_path / "p").write_text("")
    (tmp_path / "script.py").write_text(WAITING)
    command = [sys.executable, str(tmp_path / "script.py"), "p", "--until-eof"]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen(command, text=True, cwd=tmp_path, **pipes) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stdout.readline() == "runs\n"
        process.stdin.close()
        assert process.stdout.readline() == "has stopped\n"
        assert process.wait(20) == 0
