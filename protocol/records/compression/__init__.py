"""The codecs of record batches, and the frames that they come in."""
