"""Exactly once to Parquet: the stream is started again after a crash, and no flight is missing or there twice.

Spark writes the offsets of a micro-batch into the checkpoint before it runs, and a mark when it is complete. The crash
comes after the files of the last batch and before its mark, the worst moment: the restarted stream repeats the batch
with the same offsets, and the log in the folder lists its files already. You see the flights in the files before and
after.

Run it: python -m examples.streams.exactly_once_files [host:port]
"""

from __future__ import annotations

from pathlib import Path

from pyspark.sql import DataFrame

from examples.streams.stage import FLIGHT, Stage, finish, open_stage, show


def run(stage: Stage) -> list[tuple[str, int, int]]:
    """Return the rows and the distinct flights in the files before the crash and after the restart."""
    topic, files = stage.flights_topic(), stage.folder / "flights"
    copy(stage, topic, files)
    before = counted(stage.spark.read.parquet(str(files)))
    forget_last_commit(stage.folder / "files-checkpoint")
    copy(stage, topic, files)
    after = counted(stage.spark.read.parquet(str(files)))
    return [("before the crash", *before), ("after the restart", *after)]


def copy(stage: Stage, topic: str, files: Path) -> None:
    """Copy what the topic has to Parquet files, in several micro-batches."""
    records = stage.read_stream(topic, maxOffsetsPerTrigger=str(-(-stage.flights // 3)))
    flight = records.select(FLIGHT.decode("value").alias("flight")).select("flight.*")
    finish(stage.write_stream(flight, "files-checkpoint").format("parquet").option("path", str(files)))


def forget_last_commit(checkpoint: Path) -> None:
    """Leave the checkpoint as a crash does that comes before the mark of the last micro-batch."""
    commits = checkpoint / "commits"
    last = max(int(mark.name) for mark in commits.iterdir() if mark.name.isdigit())
    (commits / f"{last}").unlink()
    (commits / f".{last}.crc").unlink(missing_ok=True)


def counted(rows: DataFrame) -> tuple[int, int]:
    """Return the number of rows and of distinct flights."""
    return rows.count(), rows.select("row").distinct().count()


def main() -> None:
    """Run the example."""
    with open_stage() as stage:
        show("Flights in the files", ("", "rows", "distinct"), run(stage))


if __name__ == "__main__":
    main()
