"""Every example in the pages for users is run, against a cluster of three nodes.

docs/groups.md has a test of its own: interop/test_group_docs.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from kazoo.client import KazooClient

from barnabas.client.admin import Admin
from barnabas.console.development_cluster import Cluster
from tests.harness.pages import Notebook

DOCS = Path(__file__).parent.parent / "docs"
PAGES = [
    page for name in ("client.md", "client/*.md", "testing.md") for page in sorted(DOCS.glob(name))
]
CONSUMERS = "/consumers"


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster(3) as running:
        yield running


@pytest.fixture
async def empty_cluster(cluster: Cluster) -> Cluster:
    """Without the topics, and the positions in ZooKeeper, of the pages before."""
    async with Admin.of(cluster.bootstrap) as admin:
        topics = await admin.list_topics()
        await admin.delete_topics(topic.name for topic in topics if not topic.is_internal)
    zookeeper = KazooClient(cluster.zookeeper)
    zookeeper.start()
    if zookeeper.exists(CONSUMERS):
        for group in zookeeper.get_children(CONSUMERS):
            zookeeper.delete(f"{CONSUMERS}/{group}", recursive=True)
    zookeeper.stop()
    zookeeper.close()
    return cluster


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(DOCS)))
async def test_every_example_of_the_page_runs(
    page: Path, empty_cluster: Cluster, tmp_path: Path
) -> None:
    known = {"bootstrap": empty_cluster.bootstrap, "zookeeper": empty_cluster.zookeeper}
    assert await Notebook(page, known, tmp_path).run() > 0
