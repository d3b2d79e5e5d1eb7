"""The processes and the checkpoint of the workload ``spark``, with a program that is no Spark."""

from __future__ import annotations

import random
import subprocess
from pathlib import Path

import pytest
from acknowledged import wait_for
from copy_workload import SDK_COPY, run_workload

from tidelog_chaos.workload.spark import CopyQuery
from tidelog_chaos.workload.spark.checkpoint import committed_batch
from tidelog_chaos.workload.spark.processes import why_no_processes

pytestmark = pytest.mark.skipif(why_no_processes() is not None, reason="processes are found in /proc")

PROGRAM = """\
import json, subprocess, sys, time
settings = json.loads(sys.stdin.readline())
if settings["source"]["fails"]:
    open(settings["failure"], "w").write("no node answers")
    sys.exit(int(settings["source"]["fails"]))
pause = "import time; time.sleep(600)"
jvm = subprocess.Popen(["sleep", "600"])
fork = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {pause!r}, '-m', 'pyspark.daemon'])"
daemon = subprocess.Popen([sys.executable, "-c", fork, "-m", "pyspark.daemon"])
open(settings["checkpoint"] + "-started", "w").close()
time.sleep(600)
"""


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "program.py"
    path.write_text(PROGRAM)
    monkeypatch.setattr(CopyQuery, "program", path)
    return path


def query(folder: Path, fails: str = "") -> CopyQuery:
    return CopyQuery(folder, {"bootstrap.servers": "localhost:1"}, {"in": "out"}, {"fails": fails})


@pytest.mark.costly
@pytest.mark.usefixtures("program")
def test_kill_ends_the_processes_of_its_kind_and_the_end_those_that_are_left(tmp_path: Path) -> None:
    copying, dice = query(tmp_path / "spark"), random.Random(1)
    copying.start()
    try:
        wait_for((tmp_path / "spark" / "checkpoint-started").exists, "the program")
        assert copying.is_running
        wait_for(lambda: copying.kill("worker", dice) == 1, "the worker")
        assert copying.is_running
        assert copying.kill("driver", dice) == 2, "the driver and its JVM"
        wait_for(lambda: not copying.is_running, "the end of the driver")
    finally:
        copying.end()
    marked = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=True).stdout
    assert str(tmp_path) not in marked


@pytest.mark.usefixtures("program")
@pytest.mark.parametrize("code", [1, 2])
def test_query_that_fails_says_why_and_whether_another_start_may_help(tmp_path: Path, code: int) -> None:
    copying = query(tmp_path, str(code))
    copying.start()
    wait_for(lambda: not copying.is_running, "the end of the program")
    assert copying.failure() == "no node answers"
    assert copying.is_hopeless == (code == 2)
    copying.end()


def test_position_is_the_end_of_the_last_batch_that_spark_has_committed(tmp_path: Path) -> None:
    assert committed_batch(tmp_path) == (-1, {})
    for folder, numbers in (("offsets", (8, 9, 10)), ("commits", (8, 9))):
        (tmp_path / folder).mkdir()
        for number in numbers:
            offsets = f'{{"t":{{"0":{number},"1":7}},"@ids":{{"t":"AAAA"}}}}'
            (tmp_path / folder / str(number)).write_text(f"v1\n{{}}\n{offsets}")
            (tmp_path / folder / f".{number}.crc").touch()
    assert committed_batch(tmp_path) == (9, {"t-0": 9, "t-1": 7})


@pytest.mark.slow
@pytest.mark.costly
def test_workload_spark_writes_a_valid_history_of_a_query_that_is_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(CopyQuery, "program", SDK_COPY)
    verdict = run_workload(tmp_path, 2)
    assert verdict.valid, verdict.anomalies
    copies = verdict.statistics["copies"]
    assert copies["copied"]
    assert copies["copies"] > 20
    assert copies["starts"] > 1, copies
