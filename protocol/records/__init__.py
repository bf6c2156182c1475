"""Record batches and the older message sets, read and written without any I/O."""
