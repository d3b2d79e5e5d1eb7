"""A join of two streams: which searches for a flight led to a click within ten minutes?

A travel site has two topics, searches and clicks, which here are made up from the flights. The join keeps the rows of
both streams as state until the watermarks say that no partner can come any more. You see, for each destination, the
searches that led to a click, and the mean minutes in between.

Run it: python -m examples.streams.clicks_and_searches [host:port]
"""

from __future__ import annotations

import datetime
import json

from pyspark.sql.functions import avg, col, expr
from pyspark.sql.functions import count as count_of

from examples.streams.late_windows import scheduled
from examples.streams.stage import Stage, flights, open_stage, show
from tidelog.spark import Json

LIMIT_MINUTES = 10
SEARCH = Json("search_id INT, dest STRING, searched TIMESTAMP")
CLICK = Json("clicked_id INT, clicked TIMESTAMP")


def run(stage: Stage) -> list[tuple[str, int, float]]:
    """Return the destinations with their searches that led to a click and the minutes in between, the most first."""
    searches, clicks = stage.create_topic("searches"), stage.create_topic("clicks")
    made_up = searches_and_clicks(flights(stage.flights))
    stage.produce(searches, ((dest, text(search_id=i, dest=dest, searched=at)) for i, dest, at, _ in made_up))
    stage.produce(clicks, ((dest, text(clicked_id=i, clicked=at)) for i, dest, _, at in made_up if at is not None))
    searched = stage.read_stream(searches).select(SEARCH.decode("value").alias("s")).select("s.*")
    clicked = stage.read_stream(clicks).select(CLICK.decode("value").alias("c")).select("c.*")
    condition = f"""
        search_id = clicked_id AND clicked BETWEEN searched AND searched + INTERVAL {LIMIT_MINUTES} MINUTES"""
    joined = searched.withWatermark("searched", "1 hour").join(
        clicked.withWatermark("clicked", "1 hour"), expr(condition)
    )
    pairs = stage.table_of(joined, "append")
    minutes = (col("clicked").cast("long") - col("searched").cast("long")) / 60
    totals = pairs.groupBy("dest").agg(count_of("*").alias("clicks"), avg(minutes))
    return [tuple(row) for row in totals.orderBy(col("clicks").desc(), "dest").collect()]


def searches_and_clicks(
    rows: list[dict[str, str]],
) -> list[tuple[int, str, datetime.datetime, datetime.datetime | None]]:
    """Return one search per flight, by id, and the click that follows every second search within 0 to 14 minutes."""
    searches = sorted((scheduled(row), row["dest"]) for row in rows)
    return [
        (number, dest, at, at + datetime.timedelta(minutes=number % 15) if number % 2 else None)
        for number, (at, dest) in enumerate(searches)
    ]


def text(**fields: object) -> str:
    """Return JSON."""
    return json.dumps(fields, default=str)


def main() -> None:
    """Run the example."""
    with open_stage() as stage:
        show("Searches that led to a click", ("destination", "clicks", "minutes"), run(stage))


if __name__ == "__main__":
    main()
