"""One connection to a broker: requests out, responses in their order."""
