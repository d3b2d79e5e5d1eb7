"""Batches that come again are in Delta's tables once, with the release of Delta for the installed Spark."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from compat.jars import Unavailable, delta_jars
from quick_jvm import QUICK_JVM

pytestmark = [pytest.mark.compat, pytest.mark.timeout(300)]

PROGRAM = Path(__file__).with_name("spark_delta.py")


def test_batch_that_comes_again_is_in_the_table_once(tmp_path: Path) -> None:
    try:
        jars = delta_jars()
    except Unavailable as error:
        pytest.skip(f"Delta has no release for this Spark: {str(error)[:200]}")
    [options] = QUICK_JVM.values()
    command = [sys.executable, str(PROGRAM), ",".join(map(str, jars)), str(tmp_path)]
    environment = {**os.environ, "JDK_JAVA_OPTIONS": options}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=280, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    found = json.loads(done.stdout.splitlines()[-1])
    assert found == {"files/a": [0, 2, 4, 6], "spark": list(range(8)), "divided/a": [0, 2, 4, 6]}
