"""Users' SCRAM credentials: created, described, replaced and deleted, each user by itself, and every refusal."""

from __future__ import annotations

from compat.wire.case import Case, Family

from tidelog_node.kafka.protocol.messages.scram import (
    AlterUserScramCredentialsRequest,
    DescribeUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
    UserName,
)

SHA_256, SHA_512 = 1, 2
_PASSWORD = bytes(range(32))


def _set(
    name: str, mechanism: int = SHA_256, iterations: int = 4_096, salt: bytes = b"salt", password: bytes = _PASSWORD
) -> ScramCredentialUpsertion:
    return ScramCredentialUpsertion(name, mechanism, iterations, salt, password)


def _alter(name: str, *upsertions: ScramCredentialUpsertion, delete: tuple[tuple[str, int], ...] = ()) -> Case:
    deletions = [ScramCredentialDeletion(user, mechanism) for user, mechanism in delete]
    return Case(f"scram: {name}", AlterUserScramCredentialsRequest(deletions, list(upsertions)))


def _describe(name: str, *users: str, is_null: bool = False, until: str = "") -> Case:
    names = None if is_null else [UserName(user) for user in users]
    return Case(f"scram: describe {name}", DescribeUserScramCredentialsRequest(names), settles=True, until=until)


_CASES = (
    _describe("nobody", is_null=True),
    _alter("change nothing"),
    _alter("create", _set("alice"), _set("bob", SHA_512, 16_384)),
    _describe("all", is_null=True),
    _describe("all by an empty list"),
    _describe("one", "alice"),
    _describe("an unknown one", "carol", "bob"),
    _describe("one twice", "alice", "alice", "bob"),
    _describe("an empty name", ""),
    _alter("replace", _set("alice", iterations=8_192)),
    _alter("add another mechanism", _set("alice", SHA_512)),
    _describe("both mechanisms", "alice"),
    *(_alter(f"create with {n} iterations", _set("dave", iterations=n)) for n in (0, -1, 4_095, 16_385)),
    *(_alter(f"create with mechanism {n}", _set("dave", n)) for n in (0, 3, -1)),
    _alter("create without a name", _set("")),
    _alter("create with an empty salt", _set("erin", salt=b"")),
    _alter("create with an empty password", _set("dave", password=b"")),
    _alter("create with a short password", _set("frank", password=b"short")),
    _alter("create one twice", _set("dave"), _set("dave", SHA_512), _set("grace")),
    _alter("create and delete one", _set("alice"), delete=(("alice", SHA_256),)),
    _alter("delete one twice", delete=(("alice", SHA_256), ("alice", SHA_512))),
    _alter("delete one thrice", delete=(("alice", SHA_256), ("alice", SHA_512), ("alice", SHA_256))),
    _alter("delete an unknown one", delete=(("carol", SHA_256), ("bob", SHA_256))),
    _alter("delete of mechanism 0", delete=(("bob", 0),)),
    _alter("delete without a name", delete=(("", SHA_256),)),
    _alter("delete an unknown one and create it", _set("carol"), delete=(("carol", SHA_256),)),
    _alter("delete one and create another", _set("heidi"), delete=(("alice", SHA_256),)),
    _describe("what is left", is_null=True),
)

FAMILIES = (Family("scram", _CASES),)
