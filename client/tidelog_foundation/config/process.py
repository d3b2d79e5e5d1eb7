"""The startup common to a cluster's processes: ``PROGRAM FILE [--override key=value ...]``.

A problem that the operator can fix (a missing file, an unknown key, a port in use, a directory without write
permission) prints one line on stderr and exits with code 2. A failed disk prints one line and exits with code 1. Any
other error is a defect; it prints a traceback and exits with code 1.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import sys
import threading
from collections.abc import Callable, Coroutine, Iterator, Sequence
from pathlib import Path
from typing import NoReturn, TypeAlias

from tidelog_foundation.config.providers import resolve_settings
from tidelog_foundation.errors import ConfigError, ErrorCode, TidelogError
from tidelog_foundation.logs.settings import start_logging

EXIT_DISK_FAILURE = 1
EXIT_CONFIGURATION = 2
UNTIL_EOF = "--until-eof"
"""The option of a process that another one supervises."""
Supervise: TypeAlias = Callable[[dict[str, str], int, Sequence[str]], Coroutine[None, None, None]]
"""Runs a number of processes: from the properties, their number, and the file with the overrides as arguments."""
_LAST_STEPS_S = 2.0


def stop_signals() -> tuple[signal.Signals, ...]:
    """Return the signals that stop a server: SIGTERM, and SIGINT unless it was ignored at startup.

    A shell script ignores SIGINT for background processes, as nohup ignores SIGHUP, so that Ctrl-C reaches only the
    foreground. Kafka's servers and tools respect that too.
    """
    is_ignored = signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    return (signal.SIGTERM,) if is_ignored else (signal.SIGTERM, signal.SIGINT)


def run_process(
    main: Callable[[dict[str, str]], Coroutine[None, None, None]],
    argv: Sequence[str] | None = None,
    program: str | None = None,
    supervise: Supervise | None = None,
) -> int:
    """Run ``await main(properties)`` on a uvloop until it ends; return the exit code.

    Config providers have replaced the references in the properties.

    ``main`` should import slow modules (grpc) itself. Logging goes to stderr, as `LoggingSettings` says. ``argv``
    defaults to the command line's arguments; ``program``, the name in messages, to the started file. ``main`` handles
    SIGTERM from before it opens anything; an earlier one ends the process with 0. With the option ``--processes N``,
    which there is if ``supervise`` is given, that runs in place of ``main``.
    """
    previous = signal.signal(signal.SIGTERM, _end_before_the_start)
    program = program or Path(sys.argv[0]).name
    # Suppress gRPC's own reports, which would accompany our one clear line.
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    try:
        arguments = _parse_arguments(program, argv, has_processes=supervise is not None)
        if arguments.until_eof:
            threading.Thread(target=_stop_at_eof, name="until-eof", daemon=True).start()
        # Config providers may log.
        start_logging({})
        properties = resolve_settings(load_properties(arguments.file, arguments.override))
        start_logging(properties)
        if supervise is not None and arguments.processes is not None:
            overrides = (f"--override={each}" for each in arguments.override)
            run_on_loop(supervise(properties, arguments.processes, [arguments.file, *overrides]))
        else:
            run_on_loop(main(properties))
    except TidelogError as error:
        print(f"{program}: {_one_line(error.message)}", file=sys.stderr)
        return EXIT_DISK_FAILURE if error.code is ErrorCode.KAFKA_STORAGE_ERROR else EXIT_CONFIGURATION
    except KeyboardInterrupt:
        return 130
    finally:
        signal.signal(signal.SIGTERM, previous or signal.SIG_DFL)
    return 0


def _stop_at_eof() -> None:
    """Stop this process when its standard input ends."""
    with contextlib.suppress(OSError):
        while os.read(0, 4096):
            pass
    os.kill(os.getpid(), signal.SIGTERM)


def run_on_loop(main: Coroutine[None, None, None]) -> None:
    """Run a coroutine to its end on a new event loop, uvloop's where that is installed."""
    try:
        import uvloop
    except ImportError:
        import asyncio

        asyncio.run(_to_the_end(main))
    else:
        uvloop.run(_to_the_end(main))


def _end_before_the_start(*_: object) -> None:
    # Not an exception, because Python may swallow one during an import or in a finalizer.
    os._exit(0)


def load_properties(path: str | Path, overrides: Sequence[str] = ()) -> dict[str, str]:
    """Return the keys and values of a Java properties file, updated with ``key=value`` overrides.

    References to config providers remain as they are.

    Raises:
        ConfigError: the file cannot be read, or an override has no "=".
    """
    # The import is local because clients import this package without having javaproperties.
    import javaproperties

    try:
        with open(path, encoding="utf-8") as file:
            properties: dict[str, str] = javaproperties.load(file)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise ConfigError(f"cannot read the configuration file {path}: {reason}") from error
    for override in overrides:
        key, separator, value = override.partition("=")
        if not separator or not key.strip():
            raise ConfigError(f'invalid override "{override}": must be key=value')
        properties[key.strip()] = value.strip()
    return properties


@contextlib.contextmanager
def ungrouped() -> Iterator[None]:
    """Replace a task group's exception group by its first :class:`TidelogError`, if it contains no other errors.

    A ``raise`` inside ``except*`` does that only in some versions of Python; others wrap it in a group again.
    """
    try:
        yield
    except BaseExceptionGroup as group:
        expected, others = group.split(TidelogError)
        if expected is None or others is not None:
            raise
        raise _first(expected) from None


def _first(group: BaseExceptionGroup[TidelogError]) -> TidelogError:
    for error in group.exceptions:
        return error if isinstance(error, TidelogError) else _first(error)
    raise AssertionError("an exception group is never empty")


class _OneLineParser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise ConfigError(f"{message}; usage: {self.format_usage().removeprefix('usage: ')}")


def _parse_arguments(program: str, argv: Sequence[str] | None, *, has_processes: bool) -> argparse.Namespace:
    parser = _OneLineParser(prog=program, allow_abbrev=False)
    parser.add_argument("file", metavar="FILE", help="a Java properties file with the settings")
    text = "a setting that overrides the file's; may be repeated"
    parser.add_argument("--override", action="append", default=[], metavar="KEY=VALUE", help=text)
    if has_processes:
        text = "run N nodes of consecutive ids, each in a process of its own, behind the ports of the file"
        parser.add_argument("--processes", type=int, metavar="N", help=text)
    text = "stop when the standard input ends, as that of a process whose supervisor ends"
    parser.add_argument(UNTIL_EOF, action="store_true", help=text)
    return parser.parse_args(argv)


async def _to_the_end(main: Coroutine[None, None, None]) -> None:
    """Await ``main`` with few collections at its start, then the last steps of libraries' tasks.

    gRPC's server reports its stop before the tasks of its calls have ended. Each of them would print a traceback if the
    end of the loop cancelled it.
    """
    import asyncio

    from tidelog_foundation.lasting_objects import few_collections_at_the_start

    try:
        with few_collections_at_the_start():
            await main
    finally:
        rest = asyncio.all_tasks() - {asyncio.current_task()}
        if rest:
            await asyncio.wait(rest, timeout=_LAST_STEPS_S)


def _one_line(text: str) -> str:
    return " ".join(text.split())
