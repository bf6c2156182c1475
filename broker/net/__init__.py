"""Sockets, frames, connections and the dispatch of requests."""
