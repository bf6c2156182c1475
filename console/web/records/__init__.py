"""Records of topics: read within bounds, decoded, masked, filtered."""
