"""kafka-python's own integration tests, from its sdist, run in a process of their own against an address."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
import xml.etree.ElementTree as ElementTree
from importlib.metadata import version
from pathlib import Path

from compat.jars import BUILD, Unavailable

ALLOW = Path(__file__).parent.parent / "kafka_python.allow"
_BROKER_VERSION = "4.2.0"
"""The broker version that kafka-python infers from the versions of a node's APIs."""
_TIMEOUT_S = 1_500
_FILES = ("test_admin_integration.py", "test_consumer_integration.py", "test_producer_integration.py")


def prepare() -> Path:
    """Return the folder of the suite of the installed kafka-python. Raises Unavailable."""
    release = version("kafka-python")
    home = BUILD / f"kafka-python-{release}"
    if not home.is_dir():
        if not os.environ.get("TIDELOG_COMPAT"):
            raise Unavailable("needs kafka-python's sdist: make compat fetches it")
        _unpack(_download(release), home)
    return home


def allowed() -> set[str]:
    """Return the ids of the tests that have passed and must pass; ``#`` begins a comment."""
    lines = (line.partition("#")[0].strip() for line in ALLOW.read_text().splitlines())
    return {line for line in lines if line}


def run(address: str) -> dict[str, str]:
    """Run the suite against ``host:port``; returns ``passed``, ``skipped: why`` or ``failed: why`` by test id.

    Raises:
        Unavailable: the suite cannot be had.
        RuntimeError: it could not be run.
    """
    home = prepare()
    report = home / "report.xml"
    report.unlink(missing_ok=True)
    path = os.pathsep.join([str(home), *filter(None, [os.environ.get("PYTHONPATH")])])
    options = ("-p", "no:cacheprovider", "-q", "-c", "pytest.ini", "--timeout", "120")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *options, f"--junitxml={report}", *(f"test/integration/{f}" for f in _FILES)],
        cwd=home,
        env={**os.environ, "KAFKA_URI": f"kafka://{address}", "KAFKA_VERSION": _BROKER_VERSION, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=_TIMEOUT_S,
        check=False,
    )
    (home / "output.txt").write_text(done.stdout + done.stderr)
    if not report.exists():
        raise RuntimeError(f"the suite did not run:\n{done.stdout[-3000:]}{done.stderr[-3000:]}")
    return {_id(case): _outcome(case) for case in ElementTree.parse(report).iter("testcase")}


def _id(case: ElementTree.Element) -> str:
    return f"{case.get('classname', '').rpartition('.')[2]}::{case.get('name')}"


def _outcome(case: ElementTree.Element) -> str:
    for kind, word in (("failure", "failed"), ("error", "failed"), ("skipped", "skipped")):
        found = case.find(kind)
        if found is not None:
            return f"{word}: {(found.get('message') or '').splitlines()[0] if found.get('message') else ''}"
    return "passed"


def _download(release: str) -> Path:
    target = BUILD / "sdists"
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--no-binary", ":all:", "-d", str(target)]
    done = subprocess.run([*command, f"kafka-python=={release}"], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise Unavailable(f"pip could not bring kafka-python's sdist: {done.stderr[-500:]}")
    [archive] = target.glob(f"kafka_python-{release}.tar.gz")
    return archive


def _unpack(archive: Path, home: Path) -> None:
    fresh = home.with_name(f"{home.name}.{os.getpid()}")
    with tarfile.open(archive) as tar:
        tar.extractall(fresh, filter="data")
    [source] = fresh.iterdir()
    tests = source / "test"
    # Only the tests: its package must come from the environment.
    (fresh / "kept").mkdir()
    shutil.move(tests, fresh / "kept" / "test")
    (fresh / "kept" / "test" / "__init__.py").touch()
    shutil.copy(Path(__file__).with_name("service.py"), fresh / "kept" / "test" / "service.py")
    # The fixtures want the folder of an installation, even for a broker that runs elsewhere.
    (fresh / "kept" / "servers" / _BROKER_VERSION / "kafka-bin").mkdir(parents=True)
    # Without a file of its own it would take the settings of this repository, in which it lies.
    (fresh / "kept" / "pytest.ini").write_text("[pytest]\n")
    (fresh / "kept").rename(home)
    shutil.rmtree(fresh)
