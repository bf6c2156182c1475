"""The files beside the batches of a log, as values: indexes, snapshots, checkpoints."""
