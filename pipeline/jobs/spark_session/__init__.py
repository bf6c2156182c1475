"""What jobs do with the session of Spark: our package, shuffles, persisted frames."""
