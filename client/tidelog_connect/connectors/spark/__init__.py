"""SparkSource and SparkSink: any data source of Spark by its name."""
