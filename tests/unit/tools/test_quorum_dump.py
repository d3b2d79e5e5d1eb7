"""``tidelog quorum dump`` on logs and snapshots that the quorum's own storage wrote."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from tidelog_cli.tools.quorum_dump import app
from tidelog_foundation.errors import ErrorCode
from tidelog_foundation.ids import AclId, BrokerEpoch, BrokerId, TopicId, uuid_text
from tidelog_foundation.requests.acls import AclBinding, AclOperation, AclPermissionType, PatternType, ResourceType
from tidelog_foundation.requests.addresses import Endpoint, ListenerEndpoint
from tidelog_foundation.sasl.scram_credentials import ScramMechanism
from tidelog_quorum.metadata.batches import frame_batches
from tidelog_quorum.metadata.codec import encode_batch
from tidelog_quorum.metadata.records import (
    AccessControlEntryRecord,
    RegisterBrokerRecord,
    RemoveAccessControlEntryRecord,
    TopicRecord,
    UserScramCredentialRecord,
)
from tidelog_quorum.raft.core.commands import Persist
from tidelog_quorum.raft.core.messages import Entry, EntryKind, HardState
from tidelog_quorum.raft.core.voters import Voter, VoterSet
from tidelog_quorum.raft.storage.raft_storage import open_storage

TOPIC_ID = TopicId(bytes(range(16)))
VOTERS = VoterSet([Voter.at(1, "a", 1, b"d" * 16), Voter.at(2, "b", 2)])


def dump(path: Path, *options: str) -> Result:
    return CliRunner().invoke(app, [str(path), *options])


def batch(*names: str) -> bytes:
    return encode_batch([TopicRecord(name, TOPIC_ID) for name in names])


def write_log(directory: Path, entries: Sequence[Entry]) -> None:
    storage, _ = open_storage(directory, "c1", 1)
    storage.write([Persist(1, HardState(3, 2), None, tuple(entries))])
    storage.close()


@pytest.fixture
def log(tmp_path: Path) -> Path:
    directory = tmp_path / "metadata"
    entries = [
        Entry(1, 2, EntryKind.NO_OP),
        Entry(2, 2, EntryKind.VOTERS, voters=VOTERS),
        Entry(3, 2, EntryKind.DATA, batch("flights", "two words")),
        Entry(4, 2, EntryKind.DATA, batch("orders")),
    ]
    write_log(directory, entries)
    return directory


def test_dump_shows_the_log_in_lines(log: Path) -> None:
    lines = dump(log).stdout.splitlines()
    assert lines[:2] == [f"log: {log}", "clusterId: c1"]
    assert {"controllerId: 1", "epoch: 3", "votedFor: 2", "logStartOffset: 1", "logEndOffset: 4"} <= set(lines)
    body = lines[lines.index("") + 1 :]
    assert body[0] == "offset: 1 epoch: 2 type: NO_OP bytes: 0 (0 records)"
    assert body[2].startswith("  VOTERS_RECORD voters=[(id=1 endpoint=a:1 directory_id=")
    assert body[4] == "  TOPIC_RECORD name=flights topic_id=AAECAwQFBgcICQoLDA0ODw"
    assert body[5] == '  TOPIC_RECORD name="two words" topic_id=AAECAwQFBgcICQoLDA0ODw'
    assert len(body) == 8


def test_dump_shows_acls_with_their_ids_in_kafkas_form(tmp_path: Path) -> None:
    path = tmp_path / f"{7:020d}-{2:010d}.checkpoint"
    acl_id = AclId(bytes(range(16)))
    acl = AclBinding(
        ResourceType.TOPIC, "t", PatternType.LITERAL, "User:a", "*", AclOperation.READ, AclPermissionType.ALLOW
    )
    records = [AccessControlEntryRecord(acl_id, acl), RemoveAccessControlEntryRecord(acl_id)]
    path.write_bytes(b"".join(frame_batches([encode_batch(records)])))
    lines = [line.strip() for line in dump(path).stdout.splitlines()]
    created = next(line for line in lines if line.startswith("ACCESS_CONTROL_ENTRY_RECORD"))
    assert created.startswith("ACCESS_CONTROL_ENTRY_RECORD id=AAECAwQFBgcICQoLDA0ODw acl=(resource_type=")
    assert "principal=User:a host=* operation=ACL_OPERATION_READ" in created
    assert "REMOVE_ACCESS_CONTROL_ENTRY_RECORD id=AAECAwQFBgcICQoLDA0ODw" in lines


def test_dump_redacts_the_secrets_of_credentials(tmp_path: Path) -> None:
    path = tmp_path / f"{7:020d}-{2:010d}.checkpoint"
    record = UserScramCredentialRecord("alice", ScramMechanism.SCRAM_SHA_256, b"S" * 16, b"T" * 32, b"V" * 32, 4_096)
    path.write_bytes(b"".join(frame_batches([encode_batch([record])])))
    for result in dump(path), dump(path, "--json"):
        assert "alice" in result.stdout
        secrets = [record.salt, record.stored_key, record.server_key]
        assert not any(text in result.stdout for secret in secrets for text in (secret.hex(), uuid_text(secret)))
    [line] = [line.strip() for line in dump(path).stdout.splitlines() if "alice" in line]
    assert line == (
        "USER_SCRAM_CREDENTIAL_RECORD name=alice mechanism=SCRAM_MECHANISM_SCRAM_SHA_256 "
        'salt="(redacted)" stored_key="(redacted)" server_key="(redacted)" iterations=4096'
    )


def test_dump_begins_and_ends_where_it_is_told(log: Path) -> None:
    rows = [json.loads(line) for line in dump(log, "--json", "--from", "2", "--max", "2").stdout.splitlines()]
    assert [row.get("offset") for row in rows] == [None, 2, 3]
    assert [r["name"] for r in rows[2]["records"]] == ["flights", "two words"]
    assert rows[0]["logEndOffset"] == 4


def test_dump_changes_nothing_in_the_folder(log: Path) -> None:
    def contents() -> dict[str, bytes]:
        return {p.name: p.read_bytes() for p in log.iterdir() if not p.name.startswith("LOG")}

    before = contents()
    assert dump(log).exit_code == 0
    assert contents() == before


def test_dump_shows_a_snapshot(tmp_path: Path) -> None:
    path = tmp_path / f"{7:020d}-{2:010d}.checkpoint"
    path.write_bytes(b"".join(frame_batches([batch("a", "b"), batch("c")])))
    lines = dump(path).stdout.splitlines()
    assert lines[:3] == [f"snapshot: {path}", "offset: 7", "epoch: 2"]
    assert [line.split()[1] for line in lines if line.startswith("  TOPIC")] == ["name=a", "name=b", "name=c"]
    rows = [json.loads(line) for line in dump(path, "--json", "--max", "2").stdout.splitlines()]
    assert [r["name"] for row in rows[1:] for r in row["records"]] == ["a", "b"]


def check_fails(result: Result, code: ErrorCode, text: str) -> None:
    assert result.exit_code == 1
    assert f"{code.name}: " in str(result.exception)
    assert text in str(result.exception)


def test_dump_refuses_what_is_no_log_or_is_damaged(log: Path, tmp_path: Path) -> None:
    check_fails(dump(tmp_path), ErrorCode.KAFKA_STORAGE_ERROR, f"there is no metadata log in {tmp_path}")
    (tmp_path / "other" / "pysyncobj").mkdir(parents=True)
    check_fails(dump(tmp_path / "other"), ErrorCode.UNSUPPORTED_VERSION, "controller.quorum.engine=pysyncobj")
    misnamed = tmp_path / "1.checkpoint"
    misnamed.touch()
    check_fails(dump(misnamed), ErrorCode.CORRUPT_MESSAGE, "is not named as a snapshot")
    torn = tmp_path / f"{7:020d}-{2:010d}.checkpoint"
    torn.write_bytes(b"".join(frame_batches([batch("a"), batch("b")]))[:-1])
    result = dump(torn)
    check_fails(result, ErrorCode.CORRUPT_MESSAGE, "ends inside a frame")
    assert "name=a" in result.stdout


def test_dump_refuses_a_wrong_use(log: Path, tmp_path: Path) -> None:
    path = tmp_path / f"{7:020d}-{2:010d}.checkpoint"
    path.touch()
    file = tmp_path / "some.file"
    file.touch()
    for result in (dump(path, "--from", "1"), dump(file), dump(tmp_path / "missing"), dump(log, "--max", "-1")):
        assert result.exit_code == 2


def test_dump_refuses_the_log_of_a_running_controller(log: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from tidelog_quorum.raft.storage.raft_storage import open_storage\n"
        f"storage, _ = open_storage(Path({str(log)!r}), 'c1', 1)\n"
        "print('open', flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as controller:
        assert controller.stdout is not None
        assert controller.stdout.readline() == "open\n"
        check_fails(dump(log), ErrorCode.KAFKA_STORAGE_ERROR, f"a controller runs on {log}: stop it first")
        controller.communicate()
    assert dump(log).exit_code == 0


def test_dump_shows_the_listeners_of_a_broker(tmp_path: Path) -> None:
    listeners = (ListenerEndpoint("GRPC", "a", 1, "GRPC"), ListenerEndpoint("INTERNAL", "a", 2, "PLAINTEXT"))
    record = RegisterBrokerRecord(BrokerId(7), bytes(16), BrokerEpoch(1), Endpoint("a", 1), listeners=listeners)
    write_log(tmp_path, [Entry(1, 2, EntryKind.DATA, encode_batch([record]))])
    [_, row] = [json.loads(line) for line in dump(tmp_path, "--json").stdout.splitlines()]
    assert row["records"][0]["listeners"][1] == {
        "name": "INTERNAL",
        "host": "a",
        "port": 2,
        "security_protocol": "PLAINTEXT",
    }
    assert "security_protocol=PLAINTEXT" in dump(tmp_path).stdout
