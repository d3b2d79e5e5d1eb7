"""Builds the compiled twins of the hot modules, and does without them where there is no compiler.

Every ``*.pyx`` below the packages has a pure-Python twin that is chosen at import when the compiled
module is missing, so a failed compilation makes Tidelog slower and nothing else.
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

_PACKAGE_DIRS = ("client", "quorum", "node")


class CythonBuildHook(BuildHookInterface):  # type: ignore[type-arg]
    """Compiles each .pyx in place before the wheel is put together."""

    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile; on success mark the wheel as specific to this platform."""
        if os.environ.get("TIDELOG_PURE_PYTHON"):
            return
        sources = [p for d in _PACKAGE_DIRS for p in sorted(Path(self.root, d).rglob("*.pyx"))]
        built = [module for source in sources if (module := self._compiled(source)) is not None]
        if built:
            build_data["pure_python"] = False
            build_data["infer_tag"] = True
            # The modules of this build alone: the tree may have those of other versions of Python as well.
            build_data["artifacts"] += [f"/{module.relative_to(self.root).as_posix()}" for module in built]

    def _compiled(self, source: Path) -> Path | None:
        try:
            return _compile(source, Path(self.root))
        except Exception as error:  # noqa: BLE001 - any failure of a compiler means "go without"
            self.app.display_warning(f"no compiled fast path for {source.name}: {error}")
            return None


def _compile(source: Path, root: Path) -> Path:
    from Cython.Build import cythonize
    from setuptools import Distribution, Extension
    from setuptools.command.build_ext import build_ext

    package_root = root / source.relative_to(root).parts[0]
    module = ".".join(source.relative_to(package_root).with_suffix("").parts)
    extension = Extension(module, [str(source)], extra_compile_args=["-O3", "-g0"])
    with tempfile.TemporaryDirectory() as work:
        modules = cythonize(
            [extension], build_dir=work, include_path=[str(root / "client")], language_level=3, quiet=True
        )
        command = build_ext(Distribution({"ext_modules": modules}))
        command.build_lib, command.build_temp = str(package_root), work
        command.ensure_finalized()
        command.run()
    return Path(command.get_ext_fullpath(module))


if __name__ == "__main__":
    for name in sys.argv[1:]:
        print(_compile(Path(name).resolve(), Path(__file__).resolve().parent))
