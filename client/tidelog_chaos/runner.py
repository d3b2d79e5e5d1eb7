"""One run: a cluster, clients, faults, healing, the final reads, the check.

The phases: everything starts and every replica is in sync; the workload runs while the nemesis follows its plan; all
faults are healed, and the cluster has to become healthy again; the clients write a little more, stop, crash and read
everything; the nodes stop and their files are compared, which must be identical below the high watermark, byte by byte;
the history is checked. Each phase records its results in the run's directory, so that ``tidelog chaos check`` and
``report`` can reproduce them.
"""

from __future__ import annotations

import contextlib
import faulthandler
import hashlib
import json
import shutil
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from platform import platform, python_version
from typing import Any

from rich.console import Console

from tidelog.admin import AdminClient
from tidelog_chaos.background import BackgroundThread, StillRunningError
from tidelog_chaos.deadline import Deadline
from tidelog_chaos.drivers.driver import FaultDriver
from tidelog_chaos.faults import Nemesis, PlannedFault, draw_plan
from tidelog_chaos.history import HistoryWriter
from tidelog_chaos.metrics import Meter, Recorder
from tidelog_chaos.moves import Moves
from tidelog_chaos.node_views import AskedNodes
from tidelog_chaos.progress import RunProgress
from tidelog_chaos.settings import RunSettings
from tidelog_chaos.watch import Watch
from tidelog_chaos.workload import (
    Library,
    QueueWorkload,
    SparkWorkload,
    SubscribeWorkload,
    TransactionsWorkload,
    Workload,
    load_library,
)
from tidelog_foundation.errors import ConfigError, TidelogError
from tidelog_foundation.records import iter_headers

HISTORY, RUN, REPLICAS, METRICS = "history.jsonl", "run.json", "replicas.json", "metrics.jsonl"
"""The files that a run itself writes into its directory."""
LOGS = "logs"
"""The folder with the output of the processes."""

_WORKLOADS: Mapping[str, Callable[..., Workload]] = {
    "queue": QueueWorkload,
    "subscribe": SubscribeWorkload,
    "transactions": TransactionsWorkload,
    "spark": SparkWorkload,
}
_START_S = 60.0
_RECOVERY_S = 120.0
_HEALS_S = 180.0
"""The limits of the nemesis: ending its thread, the active faults and the moves."""
_CLOSES_S = 120.0
"""The limit of closing the clients and ending all processes."""
_STAYS_WHOLE_S = 60.0
_MARGIN_S = 60.0
_CALM_S = 3.0
_TICK_S = 0.25


@dataclass(slots=True)
class RunOutcome:
    """The findings of a run besides its history. ``problems`` are sentences about unexpected events."""

    problems: list[str] = field(default_factory=list)
    phases_s: dict[str, float] = field(default_factory=dict)
    """The start of each phase, in seconds of the history's clock."""
    recovery_s: float | None = None
    """The time from the start of the healing until every replica was in sync; None if it was too long."""
    interrupted: bool = False
    errors: dict[str, int] = field(default_factory=dict)
    sends: dict[str, int] = field(default_factory=dict)
    records_polled: int = 0
    high_watermarks: dict[str, int] = field(default_factory=dict)
    replicas: dict[str, dict[str, list[str]]] | None = None
    """Digests of each key's batches by node; None if the files cannot be read."""


def run_chaos(settings: RunSettings, driver: FaultDriver, console: Console) -> RunOutcome:
    """Run and write the directory, except for the verdict and the report.

    Ctrl-C ends the faults early, and the rest continues; a second one ends everything. In any case no process, mount or
    network of the run is left.

    Raises:
        ConfigError: The directory has another run.
        TidelogError, RuntimeError, TimeoutError: The cluster did not start.
    """
    _take_directory(settings)
    outcome, started = RunOutcome(), datetime.now(UTC)
    library = load_library(settings.client)
    plan = draw_plan(settings.seed, settings.faults, settings.duration_s, settings.interval_s)
    progress = RunProgress(console, settings.duration_s)
    try:
        with progress, _signals_interrupt(), contextlib.closing(driver):
            try:
                driver.start()
                _Run(settings, driver, library, plan, progress, outcome).run()
            finally:
                _write_run(settings, library, plan, outcome, started)
                _keep_logs(settings)
    finally:
        _end_process_after(None)
    return outcome


class _Run:
    """The phases of a run between the start of its cluster and its end."""

    def __init__(
        self,
        settings: RunSettings,
        driver: FaultDriver,
        library: Library,
        plan: tuple[PlannedFault, ...],
        progress: RunProgress,
        outcome: RunOutcome,
    ) -> None:
        self._settings = settings
        self._driver = driver
        self._library = library
        self._plan = plan
        self._progress = progress
        self._outcome = outcome
        self._healing_s = 0.0

    def run(self) -> None:
        """Run all phases."""
        with contextlib.ExitStack() as stack:
            history = stack.enter_context(HistoryWriter(self._settings.output / HISTORY))
            servers = self._driver.client_settings
            self._driver.connect_library(self._library)
            admin = stack.enter_context(AdminClient(servers))
            meter = Meter()
            prefix = f"chaos-{self._settings.seed}-{int(time.time())}"
            workload = _WORKLOADS[self._settings.workload](
                self._settings.queue,
                self._library,
                self._driver.load_settings(self._library),
                servers,
                admin,
                prefix,
                history,
                meter,
                self._settings.seed,
                self._settings.data_dir / self._settings.workload,
            )
            factor = self._settings.queue.replication_factor
            nodes = stack.enter_context(contextlib.closing(AskedNodes(servers)))
            watch = Watch(admin, nodes, lambda: workload.targets, lambda: workload.topics, factor)
            moves = Moves(admin, lambda: workload.targets, factor)
            nemesis = Nemesis(self._driver, self._plan, watch, moves, self._noted(history))
            recorder = Recorder(
                self._settings.output / METRICS,
                meter,
                lambda: history.now_ns() / 1e9,
                lambda: watch.view,
                lambda: nemesis.active,
            )
            stack.callback(_end_process_after, _CLOSES_S)
            self._run_phases(history, workload, watch, nemesis, recorder)

    def _run_phases(
        self, history: HistoryWriter, workload: Workload, watch: Watch, nemesis: Nemesis, recorder: Recorder
    ) -> None:
        def phase(name: str, text: str, limit_s: float | None) -> None:
            self._outcome.phases_s[name] = round(history.now_ns() / 1e9, 3)
            self._progress.phase(text)
            _end_process_after(limit_s)

        phase("start", "starting the workload", 3 * _START_S)
        try:
            workload.start()
            watch.start()
            recorder.start()
            missing = watch.wait_whole(_START_S)
            if missing:
                raise TimeoutError(f"the cluster was not whole after {_START_S:.0f} s: {missing}")
            phase("faults", "faults" if self._plan else "no faults", self._settings.duration_s + _HEALS_S)
            self._let_it_rage(workload, nemesis, recorder)
            phase("recovery", "waiting for the cluster to be whole", _RECOVERY_S)
            deadline = Deadline(workload.ends_s)
            self._wait_recovered(watch)
            self._outcome.problems += self._driver.faults_of_credentials(self._library)
            time.sleep(_CALM_S)
            phase("last-writes", "waiting for the last writes", workload.ends_s)
            self._outcome.problems += workload.stop_writing(deadline)
            phase("final-reads", "reading everything", None)
            self._read_everything(workload)
            is_whole = self._is_whole(watch)
        except BaseException:
            workload.give_up()
            raise
        finally:
            _end_process_after(None)
            self._stop(watch, recorder)
            self._outcome.errors = workload.errors
            self._outcome.sends = {str(outcome): count for outcome, count in recorder.sends.items()}
            self._outcome.records_polled = recorder.records
        phase("replicas", "comparing the replicas", None)
        self._note_failures(nemesis)
        if is_whole:
            self._compare_replicas()

    def _is_whole(self, watch: Watch) -> bool:
        """Return whether the replicas can be compared: one that is not in sync may lack records."""
        missing = watch.wait_whole(_STAYS_WHOLE_S)
        if missing is not None:
            self._problem(f"the replicas were not compared, for not all were in sync in the end: {missing}")
        return missing is None

    def _stop(self, *threads: BackgroundThread) -> None:
        for thread in threads:
            try:
                thread.stop()
            except StillRunningError as error:
                self._problem(str(error))

    def _noted(self, history: HistoryWriter) -> Callable[[str, Any], object]:
        def note(f: str, value: Any) -> None:
            op = history.note(f, value)
            self._progress.note(op.time_ns / 1e9, f, value)

        return note

    def _let_it_rage(self, workload: Workload, nemesis: Nemesis, recorder: Recorder) -> None:
        """Wait for the end of the plan, a failed client, or Ctrl-C; then heal."""
        started_s = time.monotonic()
        nemesis.start()
        try:
            while (elapsed_s := time.monotonic() - started_s) < self._settings.duration_s:
                if workload.failed is not None or nemesis.error is not None:
                    break
                self._progress.update(elapsed_s, recorder.ok_per_s, nemesis.active)
                time.sleep(_TICK_S)
        except KeyboardInterrupt:
            self._outcome.interrupted = True
        finally:
            self._healing_s = time.monotonic()
            nemesis.stop()

    def _wait_recovered(self, watch: Watch) -> None:
        missing = watch.wait_whole(_RECOVERY_S)
        if missing is None:
            self._outcome.recovery_s = round(time.monotonic() - self._healing_s, 3)
        else:
            self._problem(f"not whole {_RECOVERY_S:.0f} s after the last fault was healed: {missing}")

    def _read_everything(self, workload: Workload) -> None:
        try:
            self._outcome.high_watermarks, behind = workload.finish()
        except (TidelogError, TimeoutError) as error:
            self._problem(f"the final reads failed: {error}")
            return
        if behind:
            self._problem(f"the final reads did not reach the end of {', '.join(behind)}")

    def _note_failures(self, nemesis: Nemesis) -> None:
        self._outcome.problems += nemesis.failures
        for member, failure in self._driver.failures().items():
            if member not in nemesis.damaged:
                self._problem(failure)

    def _compare_replicas(self) -> None:
        ends = self._outcome.high_watermarks
        if not ends or not self._driver.replica_folders(next(iter(ends))):
            return
        if not self._driver.stop_nodes():
            self._problem("a node did not stop as it should when it was told to")
        folders = {key: self._driver.replica_folders(key) for key in ends}
        for key, of_key in folders.items():
            if len(of_key) != self._settings.queue.replication_factor:
                self._problem(f"{key} has replicas on {', '.join(of_key) or 'no node'} alone")
        self._outcome.replicas = compare_replicas(folders, ends)
        text = json.dumps({"high_watermarks": ends, "replicas": self._outcome.replicas}, separators=(",", ":"))
        (self._settings.output / REPLICAS).write_text(text + "\n")

    def _problem(self, text: str) -> None:
        self._outcome.problems.append(text)


def _end_process_after(limit_s: float | None) -> None:
    """End the process, with the stacks of all its threads as its last output, if a phase goes on beyond its limit.

    The waits of a phase have limits of their own, which they report; this is for a call that never ends.
    """
    faulthandler.cancel_dump_traceback_later()
    if limit_s is not None and sys.__stderr__ is not None:
        faulthandler.dump_traceback_later(limit_s + _MARGIN_S, exit=True, file=sys.__stderr__)


def _take_directory(settings: RunSettings) -> None:
    settings.output.mkdir(parents=True, exist_ok=True)
    if any(settings.output.iterdir()):
        raise ConfigError(f"{settings.output} is not empty: --output names a new directory")


def _write_run(
    settings: RunSettings,
    library: Library,
    plan: tuple[PlannedFault, ...],
    outcome: RunOutcome,
    started: datetime,
) -> None:
    """Write ``run.json``: the settings, the plan, and the outcome."""
    found = asdict(outcome)
    del found["replicas"]
    run = {
        "started": started.isoformat(timespec="seconds"),
        "ended": datetime.now(UTC).isoformat(timespec="seconds"),
        "seed": settings.seed,
        "workload": settings.workload,
        "driver": settings.driver,
        "faults": list(settings.faults),
        "client": settings.client,
        "versions": {
            "tidelog": version("tidelog"),
            "python": python_version(),
            "platform": platform(),
            **library.versions(),
        },
        "settings": settings.as_json(),
        "plan": [asdict(fault) for fault in plan],
        "outcome": found,
    }
    (settings.output / RUN).write_text(json.dumps(run, indent=2, default=str) + "\n")


def _keep_logs(settings: RunSettings) -> None:
    """Keep the output of the processes."""
    for log in sorted(settings.data_dir.glob("*/process.log")):
        target = settings.output / LOGS / f"{log.parent.name}.log"
        target.parent.mkdir(exist_ok=True)
        shutil.copyfile(log, target)


def drop_data(settings: RunSettings) -> None:
    """Remove the data of the cluster's processes."""
    shutil.rmtree(settings.data_dir, ignore_errors=True)


@contextlib.contextmanager
def _signals_interrupt() -> Iterator[None]:
    """Let SIGTERM and SIGHUP end a run like Ctrl-C."""
    numbers = (signal.SIGTERM, signal.SIGHUP)
    previous = {number: signal.signal(number, signal.default_int_handler) for number in numbers}
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


_DIGEST_BYTES = 8


def committed_digests(folder: Path, high_watermark: int) -> list[str]:
    """Return a line per batch of a replica below the high watermark: its offsets and a digest of its bytes.

    The offsets are those of the first and the last record; batches with a gap between them give different lines. A
    batch that reaches beyond the high watermark does not count.
    """
    lines: list[str] = []
    for segment in sorted(folder.glob("*.log")):
        data = segment.read_bytes()
        for position, header in iter_headers(data):
            if header.next_offset > high_watermark:
                return lines
            batch = memoryview(data)[position : position + header.size_in_bytes]
            digest = hashlib.blake2b(batch, digest_size=_DIGEST_BYTES).hexdigest()
            lines.append(f"{header.base_offset}-{header.next_offset - 1}:{digest}")
    return lines


def compare_replicas(
    folders: Mapping[str, Mapping[str, Path]], high_watermarks: Mapping[str, int]
) -> dict[str, dict[str, list[str]]]:
    """Return for each key the digests of each node's replica; ``folders`` has their paths."""
    return {
        key: {node: committed_digests(folder, high_watermarks[key]) for node, folder in sorted(of_key.items())}
        for key, of_key in sorted(folders.items())
    }
