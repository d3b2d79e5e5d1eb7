"""Copy each row of a topic to another topic exactly once, until the driver is stopped."""

import json
from pathlib import Path

import tidelog.spark

servers = json.loads(Path(__file__).with_name("client.json").read_text())
spark = tidelog.spark.session("copy")
rows = (
    spark.readStream.format("tidelog")
    .options(**servers)
    .option("subscribe", "orders")
    .option("startingOffsets", "earliest")
    .option("maxOffsetsPerTrigger", "1000")
    .load()
)
query = (
    rows.select("key", "value")
    .writeStream.format("tidelog")
    .options(**servers)
    .option("topic", "copies")
    .option("checkpointLocation", "/var/lib/checkpoint/copy")
    .start()
)
query.awaitTermination()
