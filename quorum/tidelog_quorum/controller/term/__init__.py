"""A controller's terms: election, handling of requests, and their answers after commit."""

from tidelog_quorum.controller.term.backlog import WriteLimits
from tidelog_quorum.controller.term.commands import (
    Answer,
    BrokersChanged,
    Command,
    Encode,
    Fail,
    Handle,
    Later,
    Propose,
    Publish,
    Refuse,
    TermBegan,
)
from tidelog_quorum.controller.term.events import (
    Cancelled,
    CommitAwaited,
    Committed,
    Encoded,
    EntryRead,
    Event,
    Handled,
    HandlingFailed,
    LeaderChanged,
    LeadershipWatched,
    ProposalFailed,
    Proposed,
    SnapshotRead,
    Submitted,
    Tick,
)
from tidelog_quorum.controller.term.term import ControllerTerm
