"""Word count: the hello world of stream processing, on announcements such as "UA 1545 from EWR to IAH".

A stream splits each announcement into words and counts them. Spark keeps the counts from one micro-batch to the next,
so the table below is what one would get from all announcements at once. You see the most frequent words.

Run it: python -m examples.streams.word_count [host:port]
"""

from __future__ import annotations

from pyspark.sql.functions import col, explode, split

from examples.streams.stage import Stage, flights, open_stage, show


def run(stage: Stage) -> list[tuple[str, int]]:
    """Return the number of times each word is announced, the most frequent first."""
    topic = stage.create_topic("announcements")
    stage.produce(topic, ((None, announcement(flight)) for flight in flights(stage.flights)))
    text = stage.read_stream(topic, maxOffsetsPerTrigger=str(stage.flights // 3)).select(col("value").cast("string"))
    words = text.select(explode(split("value", " ")).alias("word"))
    counts = stage.table_of(words.groupBy("word").count())
    return [tuple(row) for row in counts.orderBy(col("count").desc(), "word").collect()]


def announcement(flight: dict[str, str]) -> str:
    """Return what one hears at the gate."""
    return f"{flight['carrier']} {flight['flight']} from {flight['origin']} to {flight['dest']}"


def main() -> None:
    """Run the example."""
    with open_stage() as stage:
        show("Words at the gates of New York", ("word", "times"), run(stage))


if __name__ == "__main__":
    main()
