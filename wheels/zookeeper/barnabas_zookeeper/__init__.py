"""ZooKeeper's jars, for ``barnabas up``: data in ``jars/``, their licences in ``licences/``."""
