"""The option ``columns``: the schema and the rows have exactly these, in their order."""

from __future__ import annotations

import pyarrow as pa
import pytest
from example_counts import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql.pandas.types import to_arrow_schema

from tidelog_foundation.errors import ConfigError
from tidelog_foundation.records import RecordBatchBuilder
from tidelog_spark.data_source import TidelogDataSource
from tidelog_spark.source.offsets import OffsetRange
from tidelog_spark.source.options import parse_options
from tidelog_spark.source.rows import read_rows
from tidelog_spark.source.schema import spark_schema

ALL = spark_schema(include_headers=True).names
MINIMAL = {"bootstrap.servers": "a:1", "subscribe": "t"}


def rows_of(columns: list[str]) -> pa.Table:
    builder = RecordBatchBuilder()
    builder.append(b"k", b"v", (("h", b"1"),), 1_700_000_000_123)
    builder.append(None, None, (), -1)
    schema = to_arrow_schema(spark_schema(include_headers=False, columns=columns), timezone="UTC")
    batches = list(read_rows(builder.build(), OffsetRange("t", 3, 0, 2), schema))
    return pa.Table.from_batches(batches, schema)


@given(st.lists(st.sampled_from(ALL), min_size=1, unique=True))
@settings(max_examples=examples(20), deadline=None)
def test_rows_have_the_chosen_columns_in_their_order(columns: list[str]) -> None:
    rows = rows_of(columns)
    assert rows.column_names == columns
    assert rows.equals(rows_of(ALL).select(columns))


def test_columns_may_be_in_any_case_and_bring_headers_along() -> None:
    options = parse_options(MINIMAL | {"columns": "VALUE, timestamptype,headers"})
    assert spark_schema(options.include_headers, options.columns).names == ["value", "timestampType", "headers"]


@pytest.mark.parametrize(
    ("raw", "text"),
    [
        ({"columns": "key,valu"}, 'columns names "valu", which is not a column of the source; did you mean "value"?'),
        ({"columns": "timestamp_type"}, 'did you mean "timestampType"?'),
        ({"columns": "xyz"}, "must be of key, value, topic, partition, offset, timestamp, timestampType, headers"),
        ({"columns": "key,Key"}, 'columns names "key" twice'),
        ({"columns": " , "}, "must not be empty"),
        ({"columns": "key", "includeHeaders": "true"}, 'includeHeaders is true, but columns is key; add "headers"'),
        ({"column": "key"}, 'did you mean "columns"?'),
    ],
)
def test_columns_are_refused_with_a_reason(raw: dict[str, str], text: str) -> None:
    with pytest.raises(ConfigError) as refused:
        TidelogDataSource(MINIMAL | raw).schema()
    assert text in str(refused.value)
