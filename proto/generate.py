"""Generates ``client/tidelog/v1`` from the .proto files, or checks that it is up to date.

``python proto/generate.py`` exits with 1 and names the files that are stale; ``--write`` replaces them.
"""

from __future__ import annotations

import filecmp
import os
import shutil
import sys
import tempfile
from pathlib import Path

from grpc_tools import protoc

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = Path("tidelog/v1")
COMMITTED = ROOT / "client" / PACKAGE
BY_HAND = {"__init__.py"}


def main() -> int:
    """Generate into a temporary folder, then compare or copy."""
    with tempfile.TemporaryDirectory() as work:
        fresh = Path(work) / PACKAGE
        _generate(Path(work))
        stale = _stale(fresh)
        if "--write" in sys.argv[1:]:
            for name in stale:
                _replace(fresh / name, COMMITTED / name)
            return 0
    for name in stale:
        print(f"stale: client/{PACKAGE}/{name}; run `make proto`", file=sys.stderr)
    return 1 if stale else 0


def _generate(target: Path) -> None:
    sources = sorted(str(path) for path in (ROOT / "proto").rglob("*.proto"))
    # protoc looks for the stubs' plugins on the PATH; they are beside this interpreter.
    os.environ["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    outputs = [f"--python_out={target}", f"--grpc_python_out={target}"]
    stubs = [f"--mypy_out=quiet:{target}", f"--mypy_grpc_out=quiet:{target}"]
    if protoc.main(["protoc", f"-I{ROOT / 'proto'}", *outputs, *stubs, *sources]) != 0:
        raise SystemExit("protoc failed")
    for path in (target / PACKAGE).glob("*_pb2_grpc.py"):
        if not path.name.endswith("_service_pb2_grpc.py"):
            path.unlink()
            path.with_suffix(".pyi").unlink()


def _stale(fresh: Path) -> list[str]:
    names = {path.name for folder in (fresh, COMMITTED) for path in folder.glob("*.py*")} - BY_HAND
    return sorted(name for name in names if not _same(fresh / name, COMMITTED / name))


def _same(left: Path, right: Path) -> bool:
    return left.exists() and right.exists() and filecmp.cmp(left, right, shallow=False)


def _replace(fresh: Path, committed: Path) -> None:
    if fresh.exists():
        shutil.copyfile(fresh, committed)
    else:
        committed.unlink()


if __name__ == "__main__":
    sys.exit(main())
