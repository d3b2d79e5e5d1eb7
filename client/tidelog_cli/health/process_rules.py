"""The rules of the doctor about single processes: clocks, limits of the operating system, versions, file systems."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from tidelog.admin import ResourceUse
from tidelog_cli.health.facts import ClusterFacts, ProcessFacts
from tidelog_cli.health.finding import Finding, Severity, named
from tidelog_cli.health.state_rules import DISK_FILLS, DISK_FULL
from tidelog_foundation.requests.processes import MEMORY_MAPS, OPEN_FILES, THREADS

_PAGE: Final = "docs/health.md#doctor"
CLOCK_LIMIT_S: Final = 1.0
"""The difference between clocks that counts, as in etcd's check of its peers."""
RESOURCE_SCARCE: Final = 0.75
RESOURCE_GONE: Final = 0.95
"""The used part of a limit of the operating system from which it is scarce, or nearly exhausted."""
MIN_OPEN_FILES: Final = 16_384
"""The lowest limit of open files for a node, which warns below it when it starts."""
_RAISE: Final = {
    OPEN_FILES: ("files may be open", "raise the limit: LimitNOFILE= of systemd, ulimit -n, or the container's"),
    THREADS: ("threads may run", "raise the limit: TasksMax= of systemd, ulimit -u, or pids.max of the control group"),
    MEMORY_MAPS: ("regions of memory may be mapped", "raise vm.max_map_count with sysctl"),
}


def process_findings(facts: ClusterFacts) -> list[Finding]:
    """Return what is wrong with single processes, and between them."""
    known = [process for process in facts.processes if process.description is not None]
    found = [*_silent(facts), *_clocks(known), *_versions(facts), *_feature_levels(known)]
    for process in known:
        found += (*_resources(process), *_directories(process))
    return found


def _silent(facts: ClusterFacts) -> Iterator[Finding]:
    for process in facts.processes:
        if process.description is None and not process.is_older:
            text = f"its clock, limits and disks are unknown: {process.error}"
            action = "look at its log, and at the network between it and here"
            yield Finding(Severity.WARNING, process.name, text, action, _PAGE)


def _clocks(known: list[ProcessFacts]) -> Iterator[Finding]:
    clocks = [(p, p.description.clock_offset_s, p.description.clock_error_s) for p in known if p.description]
    off = [(p, offset, error) for p, offset, error in clocks if abs(offset) - error > CLOCK_LIMIT_S]
    latest = max((offset - error for _, offset, error in clocks), default=0.0)
    earliest = min((offset + error for _, offset, error in clocks), default=0.0)
    if len(off) == len(clocks) > 1 and latest - earliest <= CLOCK_LIMIT_S:
        text = f"all processes agree that it is {_clock(-off[0][1], off[0][2])}; the limit is {CLOCK_LIMIT_S:g} s"
        action = "synchronize this machine's clock, or those of the cluster (chrony, NTP)"
        yield Finding(Severity.WARNING, "this machine's clock", text, action, _PAGE)
        return
    for process, offset, error in off:
        text = f"its clock is {_clock(offset, error)}, compared with this machine's; the limit is {CLOCK_LIMIT_S:g} s"
        action = "synchronize its clock (chrony, NTP): timestamps, retention and the expiry of tokens depend on it"
        yield Finding(Severity.WARNING, process.name, text, action, _PAGE)
    for process, _, error in clocks:
        if error > CLOCK_LIMIT_S:
            text = f"it answers too slowly to compare clocks: to ± {error:.1f} s, the limit is {CLOCK_LIMIT_S:g} s"
            yield Finding(Severity.INFO, process.name, text, "ask again from a machine that is nearer", _PAGE)


def _clock(offset_s: float, error_s: float) -> str:
    return f"{abs(offset_s):.3f} s (± {error_s:.3f} s) {'ahead' if offset_s > 0 else 'behind'}"


def _versions(facts: ClusterFacts) -> Iterator[Finding]:
    versions = {
        process.name: "an earlier version" if process.description is None else process.description.software_version
        for process in facts.processes
        if process.description is not None or process.is_older
    }
    if len(set(versions.values())) > 1:
        shown = "; ".join(f"{version} on {_having(versions, version)}" for version in sorted(set(versions.values())))
        action = "finish the upgrade, or return to the earlier version on all: docs/upgrade.md"
        yield Finding(Severity.WARNING, "versions", f"the processes run different versions: {shown}", action, _PAGE)


def _feature_levels(known: list[ProcessFacts]) -> Iterator[Finding]:
    names = sorted({name for process in known if process.description for name in process.description.features})
    for name in names:
        levels = {p.name: p.description.features.get(name) for p in known if p.description}
        highest = {process: 0 if level is None else level.max_level for process, level in levels.items()}
        if len(set(highest.values())) > 1:
            shown = "; ".join(f"{level} on {_having(highest, level)}" for level in sorted(set(highest.values())))
            text = f"the processes support different levels of {name}: up to {shown}"
            yield Finding(Severity.WARNING, "features", text, "run the same version on all processes", _PAGE)
        applied = {process: level.applied_level for process, level in levels.items() if level is not None}
        if len(set(applied.values())) > 1:
            shown = "; ".join(f"{level} on {_having(applied, level)}" for level in sorted(set(applied.values())))
            text = f"the processes have applied different levels of {name}: {shown}"
            action = "wait for the change to arrive; if it does not, see the logs of those with the lower level"
            yield Finding(Severity.WARNING, "features", text, action, _PAGE)


def _having(values: dict[str, str] | dict[str, int], value: str | int) -> str:
    return named([name for name, own in values.items() if own == value])


def _resources(process: ProcessFacts) -> Iterator[Finding]:
    assert process.description is not None
    for each in process.description.resources:
        what, action = _RAISE.get(each.resource, (f"{each.resource} may be used", "raise the limit"))
        if (severity := _scarcity(each)) is not None:
            text = f"{each.limit:,} {what}, and {each.used:,} are in use"
            yield Finding(severity, process.name, text, action, _PAGE)
        elif each.resource == OPEN_FILES and process.is_node and 0 <= each.limit < MIN_OPEN_FILES:
            text = f"only {each.limit:,} {what}; a node needs several per segment and one per connection"
            yield Finding(Severity.WARNING, process.name, text, f"{action}; {MIN_OPEN_FILES:,} or more", _PAGE)


def _scarcity(use: ResourceUse) -> Severity | None:
    if use.limit <= 0 or use.used < RESOURCE_SCARCE * use.limit:
        return None
    return Severity.CRITICAL if use.used >= RESOURCE_GONE * use.limit else Severity.WARNING


def _directories(process: ProcessFacts) -> Iterator[Finding]:
    assert process.description is not None
    for each in process.description.directories:
        subject = f"{process.name}, {each.path}"
        if each.is_read_only:
            text, action = (
                "its file system is read-only",
                "find the reason in the kernel's log; remount or replace it",
            )
            yield Finding(Severity.CRITICAL, subject, text, action, _PAGE)
        elif each.error:
            text, action = f"its file system does not answer: {each.error}", "mount or replace the disk"
            yield Finding(Severity.CRITICAL, subject, text, action, _PAGE)
        else:
            # A node's free bytes are facts about its log directories.
            bytes_left = None if process.is_node else _share(each.usable_bytes, each.total_bytes)
            yield from _filling(subject, "disk", bytes_left)
            yield from _filling(subject, "file system's inodes", _share(each.usable_files, each.total_files))


def _filling(subject: str, what: str, free: float | None) -> Iterator[Finding]:
    if free is not None and free < DISK_FILLS:
        severity = Severity.CRITICAL if free < DISK_FULL else Severity.WARNING
        yield Finding(severity, subject, f"{free:.0%} of the {what} is free", "free space, or add a disk", _PAGE)


def _share(usable: int, total: int) -> float | None:
    return usable / total if total > 0 and usable >= 0 else None
