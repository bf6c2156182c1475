"""The consumer: fetching, decoding, group membership and committed offsets."""
