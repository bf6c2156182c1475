"""What the job ``segments`` does with the files of a log, on executors."""
