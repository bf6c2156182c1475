"""From a declared message to bytes and back: declarations, generated code."""
