"""The stream of committed metadata that a node reads from one controller at a time, as a pure state machine.

- Any controller has the committed log. The node stays with one until the stream ends, until no response has arrived for
  ``silence_ms``, or until the controller has known no leader for as long, since its log does not advance while it is
  cut off from the quorum. It then follows the next controller, after a pause that grows with consecutive failures. The
  time to build an image does not count as silence.
- Voters that the stream names become the controllers to follow, at their addresses in the metadata. The configured ones
  remain the last resort. The node stays with the controller that it follows.
- A stream begins after the last built entry. A snapshot, or an entry in parts, counts when its last part has arrived;
  parts are discarded with their stream. Entries that are not newer than the last image are skipped.
- The next response is read when the images of the last one have been built.
- A controller of another cluster ends the node. So does a snapshot of a later quorum of this cluster, which has begun
  with restored metadata: what it lacks, such as a topic, may be lost rather than deleted. A node that starts keeps such
  logs aside, whereas the step from one image to the other would delete them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TypeAlias, assert_never

from tidelog_foundation.config.endpoints import format_address
from tidelog_foundation.dataclass import dataclass
from tidelog_foundation.errors import ErrorCode, TidelogError, error_for
from tidelog_foundation.ids import UNKNOWN_OFFSET, BrokerId
from tidelog_node.broker.report import Level, Report
from tidelog_quorum.metadata.generation import generation_of

Voters: TypeAlias = Mapping[int, tuple[str, int]]


@dataclass(frozen=True, slots=True)
class StreamTimings:
    """The maximum silence of a controller, and the pauses after failures."""

    silence_ms: int = 2_500
    pause_ms: int = 50
    max_pause_ms: int = 500


@dataclass(frozen=True, slots=True)
class EntryPart:
    """An entry of the log or a snapshot, or a part of one. ``is_continued`` is False for the last part."""

    offset: int
    epoch: int
    batch: bytes
    is_continued: bool = False


@dataclass(frozen=True, slots=True)
class Entry:
    """An entry of the log with all its parts."""

    offset: int
    epoch: int
    batches: tuple[bytes, ...]


@dataclass(frozen=True, slots=True)
class Started:
    """The node may follow the metadata."""


@dataclass(frozen=True, slots=True)
class Responded:
    """A response of the stream.

    ``leader_id`` is -1 if the controller knows no leader; ``voters`` is None if unchanged.
    """

    leader_id: BrokerId
    entries: tuple[EntryPart, ...] = ()
    voters: Voters | None = None
    begins_snapshot: bool = False
    ends_snapshot: bool = False


@dataclass(frozen=True, slots=True)
class ImageBuilt:
    """The image of the last :class:`BuildImage` or :class:`AdvanceImage` is built."""

    offset: int


@dataclass(frozen=True, slots=True)
class StreamEnded:
    """The controller has ended the stream or is unreachable."""

    error: TidelogError | None


@dataclass(frozen=True, slots=True)
class TimePassed:
    """A deadline may have passed."""


Event: TypeAlias = Started | Responded | ImageBuilt | StreamEnded | TimePassed


@dataclass(frozen=True, slots=True)
class OpenStream:
    """Follow the metadata from a controller."""

    address: str
    from_offset: int


@dataclass(frozen=True, slots=True)
class CloseStream:
    """End the stream if it is open. No more events of it follow."""


@dataclass(frozen=True, slots=True)
class BuildImage:
    """Build the image of a snapshot. The answer is :class:`ImageBuilt`."""

    offset: int
    epoch: int
    batches: tuple[bytes, ...]


@dataclass(frozen=True, slots=True)
class AdvanceImage:
    """Apply entries to the last image. The answer is :class:`ImageBuilt`."""

    entries: tuple[Entry, ...]


@dataclass(frozen=True, slots=True)
class UseLeader:
    """Use this leading controller, -1 if none is known."""

    leader_id: BrokerId


@dataclass(frozen=True, slots=True)
class UseVoters:
    """Use these voting controllers from now on."""

    voters: Voters


@dataclass(frozen=True, slots=True)
class End:
    """End this node: it belongs to another cluster, or the metadata was restored."""

    error: TidelogError


Command: TypeAlias = OpenStream | CloseStream | BuildImage | AdvanceImage | UseLeader | UseVoters | End | Report


@dataclass(frozen=True, slots=True)
class NotStarted:
    """No controller is followed yet."""


@dataclass(frozen=True, slots=True)
class Reading:
    """A stream is open. Its next response is due before ``silent_at_ms``, which is None while an image is built."""

    address: str
    silent_at_ms: int | None
    leaderless_since_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Pausing:
    """The node waits until ``until_ms`` to follow the next controller."""

    until_ms: int


@dataclass(frozen=True, slots=True)
class Ended:
    """The controllers belong to another cluster, or their metadata was restored."""


Phase: TypeAlias = NotStarted | Reading | Pausing | Ended


class MetadataStream:
    """The metadata stream of one node. ``offset`` is the offset of the last built image."""

    def __init__(self, broker_id: BrokerId, voters: Voters, configured: Sequence[str], timings: StreamTimings) -> None:
        """``configured`` has the configured addresses, at least one."""
        self.phase: Phase = NotStarted()
        self.offset = UNKNOWN_OFFSET
        self._generation: int | None = None
        self._voters = voters
        self._configured = tuple(configured)
        self._addresses = self._configured
        # Nodes begin with different controllers to distribute their streams.
        self._next = broker_id % len(self._addresses)
        self._timings = timings
        self._failures = 0
        self._snapshot: list[bytes] | None = None
        self._parts: list[bytes] = []

    @property
    def next_deadline_ms(self) -> int | None:
        """The time of the next :class:`TimePassed`, or None if there is no deadline."""
        if isinstance(self.phase, Pausing):
            return self.phase.until_ms
        return self.phase.silent_at_ms if isinstance(self.phase, Reading) else None

    def step(self, event: Event, now_ms: int) -> list[Command]:
        """Process an event and return the commands in order."""
        match event:
            case Started():
                assert isinstance(self.phase, NotStarted), self.phase
                return self._open(now_ms)
            case Responded():
                return self._take(event, now_ms)
            case ImageBuilt():
                return self._built(event.offset, now_ms)
            case StreamEnded():
                return self._end(event.error, now_ms)
            case TimePassed():
                return self._pass_time(now_ms)
            case _:
                assert_never(event)

    def check_invariants(self) -> None:
        """Assert the invariants."""
        is_reading = isinstance(self.phase, Reading)
        assert is_reading or (self._snapshot is None and not self._parts), "parts have outlived their stream"
        assert len(set(self._addresses)) == len(self._addresses) > 0
        assert set(self._configured) <= set(self._addresses)

    def _open(self, now_ms: int) -> list[Command]:
        address = self._addresses[self._next % len(self._addresses)]
        self.phase = Reading(address, now_ms + self._timings.silence_ms)
        return [OpenStream(address, self.offset + 1)]

    def _pass_time(self, now_ms: int) -> list[Command]:
        deadline_ms = self.next_deadline_ms
        if deadline_ms is None or now_ms < deadline_ms:
            return []
        return self._open(now_ms) if isinstance(self.phase, Pausing) else self._time_out(now_ms)

    def _take(self, response: Responded, now_ms: int) -> list[Command]:
        phase = self.phase
        assert isinstance(phase, Reading), phase
        assert phase.silent_at_ms is not None, "the image of the last response is being built"
        self._failures = 0
        since_ms = None if response.leader_id >= 0 else phase.leaderless_since_ms
        if response.leader_id < 0 and since_ms is None:
            since_ms = now_ms
        commands: list[Command] = [UseLeader(response.leader_id)]
        if since_ms is not None and now_ms - since_ms > self._timings.silence_ms:
            return commands + self._time_out(now_ms)
        if response.voters is not None:
            commands += self._take_voters(response.voters, phase.address)
        build = self._assemble(response)
        if isinstance(self.phase, Ended):
            return commands + build
        silent_at_ms = None if build else now_ms + self._timings.silence_ms
        self.phase = Reading(phase.address, silent_at_ms, since_ms)
        return commands + build

    def _take_voters(self, voters: Voters, followed: str) -> list[Command]:
        if not voters or voters == self._voters:
            return []
        current = voter_addresses(voters)
        self._voters = voters
        self._addresses = (*current, *(a for a in self._configured if a not in current))
        self._next = self._addresses.index(followed) if followed in self._addresses else 0
        return [Report(Level.INFO, "The controllers are now %s", (", ".join(current),)), UseVoters(voters)]

    def _assemble(self, response: Responded) -> list[Command]:
        if response.begins_snapshot:
            self._snapshot = []
        if self._snapshot is None:
            entries = self._whole_entries(response.entries)
            if not entries:
                return []
            self._generation = generation_of(entries[-1].epoch)
            return [AdvanceImage(tuple(entries))]
        self._snapshot += [part.batch for part in response.entries]
        if not response.ends_snapshot:
            return []
        batches, self._snapshot = tuple(self._snapshot), None
        last = response.entries[-1]
        if last.offset <= self.offset:
            return []
        former, self._generation = self._generation, generation_of(last.epoch)
        if former is not None and former != self._generation:
            return self._end_restored(last)
        return [BuildImage(last.offset, last.epoch, batches)]

    def _end_restored(self, last: EntryPart) -> list[Command]:
        text = (
            f"the controllers' metadata was restored while this node ran: it had offset {self.offset}, the new quorum "
            f"begins with a snapshot of offset {last.offset}, epoch {last.epoch}; start the node again"
        )
        self._forget_parts()
        self.phase = Ended()
        return [CloseStream(), End(error_for(ErrorCode._STATE, text))]

    def _whole_entries(self, parts: Sequence[EntryPart]) -> list[Entry]:
        """Return the new entries whose last part has arrived."""
        entries = []
        for part in parts:
            self._parts.append(part.batch)
            if not part.is_continued:
                batches, self._parts = tuple(self._parts), []
                if part.offset > self.offset:
                    entries.append(Entry(part.offset, part.epoch, batches))
        return entries

    def _built(self, offset: int, now_ms: int) -> list[Command]:
        phase = self.phase
        assert isinstance(phase, Reading), phase
        assert offset > self.offset, f"an image at {offset} after one at {self.offset}"
        self.offset = offset
        self.phase = replace(phase, silent_at_ms=now_ms + self._timings.silence_ms)
        return []

    def _end(self, error: TidelogError | None, now_ms: int) -> list[Command]:
        if error is not None and error.code is ErrorCode.INCONSISTENT_CLUSTER_ID:
            self._forget_parts()
            self.phase = Ended()
            return [End(error)]
        return self._turn("the stream ended" if error is None else str(error), now_ms)

    def _time_out(self, now_ms: int) -> list[Command]:
        return self._turn(f"no usable response for {self._timings.silence_ms / 1000} s", now_ms)

    def _turn(self, reason: str, now_ms: int) -> list[Command]:
        """Follow the next controller. Only the first of consecutive failures is logged above DEBUG."""
        phase = self.phase
        assert isinstance(phase, Reading), phase
        level = Level.DEBUG if self._failures else Level.INFO
        text = "The metadata stream from %s ended, trying the next controller: %s"
        self._next += 1
        self._failures += 1
        self._forget_parts()
        self.phase = Pausing(now_ms + min(self._timings.pause_ms * self._failures, self._timings.max_pause_ms))
        return [CloseStream(), Report(level, text, (phase.address, reason))]

    def _forget_parts(self) -> None:
        self._snapshot = None
        self._parts = []


def voter_addresses(voters: Voters) -> list[str]:
    """Return ``host:port`` of each voter in the order of the ids."""
    return [format_address(host, port) for _, (host, port) in sorted(voters.items())]
