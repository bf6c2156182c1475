"""What Spark writes: topics, and archives of topics as Parquet files."""
