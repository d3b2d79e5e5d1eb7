"""The client's side of Produce reads all that a broker may answer."""

from __future__ import annotations

from hypothesis import example, given
from hypothesis import strategies as st

from tidelog_node.kafka.protocol.messages.produce_client import ProduceResult, decode_response
from tidelog_node.kafka.protocol.primitives import write_string
from tidelog_node.kafka.protocol.reader import Reader
from tidelog_node.kafka.protocol.writer import Writer

TEXTS = st.none() | st.text(max_size=10)
RESULTS = st.tuples(
    st.integers(-1, 120),
    st.integers(-1, 2**63 - 1),
    st.lists(st.tuples(st.integers(0, 9), TEXTS), max_size=2),
    TEXTS,
    st.booleans(),
)
PLAIN = (0, 5, [], None, False)


@given(st.dictionaries(st.text(max_size=5), st.dictionaries(st.integers(0, 9), RESULTS, max_size=4), max_size=3))
@example({"t": {0: PLAIN, 1: (2, -1, [(0, None), (3, "bad")], "corrupt", True), 2: PLAIN}, "u": {0: PLAIN}})
def test_results_of_all_partitions_are_read(topics) -> None:
    writer = Writer()
    writer.unsigned_varint(len(topics) + 1)
    for name, partitions in topics.items():
        write_string(writer, name, is_flexible=True)
        writer.unsigned_varint(len(partitions) + 1)
        for index, (code, base_offset, errors, message, has_tag) in partitions.items():
            writer.int32(index)
            writer.int16(code)
            for number in (base_offset, -1, 0):
                writer.int64(number)
            writer.unsigned_varint(len(errors) + 1)
            for position, text in errors:
                writer.int32(position)
                write_string(writer, text, is_flexible=True)
                writer.buffer.append(0)
            write_string(writer, message, is_flexible=True)
            # The leader that the broker knows, as in responses of version 10 with an error.
            writer.buffer += b"\x01\x00\x02ab" if has_tag else b"\x00"
        writer.buffer.append(0)
    writer.int32(0)
    writer.buffer.append(0)
    reader = Reader(memoryview(b"".join(writer.chunks())))
    assert decode_response(reader) == {
        (name, index): ProduceResult(code, base_offset, message)
        for name, partitions in topics.items()
        for index, (code, base_offset, _, message, _) in partitions.items()
    }
