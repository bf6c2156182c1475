"""What the console changes in a cluster, step by step: the same for Barnabas and for Apache Kafka.

Each step is planned, seen to have changed nothing, applied by a form, and looked up in the cluster
itself. Source: docs/spec/console.md §0 (decision 5).
"""

from __future__ import annotations

import time
from typing import Any, Final
from urllib.parse import urlencode

import httpx

from barnabas.client.admin.admin import Admin
from barnabas.client.admin.descriptions import Committed, NewTopic
from barnabas.client.admin.quotas import describe_quotas
from barnabas.client.admin.scram_users import describe_scram_users
from barnabas.client.cluster import TopicPartition
from barnabas.protocol.acl import AclFilter

from .raw_calls import produce
from .raw_connection import RawConnection
from .raw_transactions import leader_of, transactional_batch
from .web_console import Reader

PASSWORD: Final = "Canary.Password.9"
"""A test of ours looks for it in whatever is answered or written."""
STRANGER: Final = 4_000_000
AGE_MS: Final = 3_600_000


class Steps:
    """Forms of one reader, and what the cluster says afterwards."""

    def __init__(self, reader: Reader, admin: Admin) -> None:
        self.reader = reader
        self.admin = admin
        self.seen: list[str] = []
        """Every answer."""

    async def plan(self, path: str, **values: str) -> dict[str, Any]:
        """What a page says would change."""
        query = urlencode({"plan": "1", **values})
        self.seen.append((await self.reader.get(f"{path}?{query}")).text)
        found: dict[str, Any] = await self.reader.json(f"{path}.json?{query}")
        return found

    async def apply(
        self, plan: dict[str, Any], *, to: str = "/operation/apply", **posted: str
    ) -> httpx.Response:
        """Send the form beneath a plan."""
        assert plan["problem"] == "", plan["problem"]
        found = plan["plan"]
        fields = {"plan": found["id"], "reason": "by a test", **posted}
        if found["typed"] and "typed" not in fields:
            fields["typed"] = found["typed"]
        done = await self.reader.post(to, fields)
        self.seen.append(done.text)
        return done

    async def done(self, path: str, secret: str = "", **values: str) -> dict[str, Any]:
        """Plan and apply, and what became of it; it has to be as planned."""
        plan = await self.plan(path, **values)
        answer = await self.apply(plan, **({"secret": secret} if secret else {}))
        assert answer.status_code == 303, answer.text
        where = answer.headers["location"]
        self.seen.append((await self.reader.get(where)).text)
        told: dict[str, Any] = await self.reader.json(where.replace("/done?", "/done.json?"))
        assert told["problem"] == "", told
        return told

    async def undo(self, told: dict[str, Any]) -> None:
        """Follow the link and press the button there."""
        path, _, query = told["undo_url"].partition("?")
        plan = await self.reader.json(f"{path}.json?{query}")
        answer = await self.apply(plan)
        assert answer.status_code == 303, answer.text


async def topics(steps: Steps, name: str) -> None:
    """Made, grown, and deleted only by whoever types its name."""
    values = {"name": name, "partitions": "2", "replicas": "1", "settings": "retention.ms=86400000"}
    await steps.plan("/topic-create", **values)
    assert name not in {topic.name for topic in await steps.admin.list_topics()}
    await steps.done("/topic-create", **values)
    (made,) = await steps.admin.describe_topics([name])
    assert len(made.partitions) == 2
    again = await steps.plan("/topic-create", **values)
    assert "TOPIC_ALREADY_EXISTS" in again["problem"]
    await steps.done("/topic-partitions", name=name, count="5")
    (grown,) = await steps.admin.describe_topics([name])
    assert len(grown.partitions) == 5
    fewer = await steps.plan("/topic-partitions", name=name, count="1")
    assert "INVALID_PARTITIONS" in fewer["problem"]
    wrong = await steps.apply(await steps.plan("/topic-delete", name=name), typed="another")
    assert wrong.status_code == 400
    assert "Nothing was changed" in wrong.text
    assert await steps.admin.describe_topics([name])
    await steps.done("/topic-delete", name=name)
    assert name not in {topic.name for topic in await steps.admin.list_topics()}
    internal = await steps.plan("/topic-delete", name="__consumer_offsets")
    assert "is internal" in internal["problem"]


async def settings(steps: Steps, name: str) -> None:
    """One setting of a topic, and back to its default."""
    values = {"topic": name, "setting": "retention.ms", "value": "777000"}
    plan = await steps.plan("/alter", **values)
    answer = await steps.reader.post("/alter/apply", {"plan": plan["plan"]["id"]})
    assert answer.status_code == 303, answer.text
    back = await steps.plan("/alter", topic=name, setting="retention.ms", default="1")
    assert back["plan"]["old"] == "777000"
    assert back["plan"]["new"] is None


async def groups(steps: Steps, topic: str, group: str) -> None:
    """Forgets one partition, is deleted, and comes back by the undo."""
    places = [TopicPartition(topic, number) for number in (0, 1)]
    await steps.admin.alter_offsets(group, {place: Committed(offset=0) for place in places})
    plan = await steps.plan("/group-forget", group=group, topics=f"{topic}:1")
    assert (await steps.apply(plan, to="/change/apply", typed="no")).status_code == 400
    plan = await steps.plan("/group-forget", group=group, topics=f"{topic}:1")
    assert (await steps.apply(plan, to="/change/apply")).status_code == 303
    assert set(await steps.admin.committed_offsets(group)) == {places[0]}
    plan = await steps.plan("/group-delete", group=group)
    done = await steps.apply(plan, to="/change/apply")
    assert done.status_code == 303, done.text
    assert not (await steps.admin.describe_group(group)).exists
    change = done.headers["location"].rpartition("=")[2]
    (row,) = (await steps.reader.json(f"/changed.json?change={change}"))["deleted"]
    assert row == {"group": group, "error": None}
    back = await steps.reader.json(f"/undo.json?change={change}")
    await steps.apply(back, to="/change/apply")
    assert set(await steps.admin.committed_offsets(group)) == {places[0]}


async def acls(steps: Steps, name: str) -> None:
    """An entry is added, shown, removed, and added again by the undo."""
    values = {
        "principal": f"User:{name}", "permission": "Deny", "operation": "Write",
        "resource": "Topic", "name": name, "pattern": "Prefixed", "host": "10.1.2.3",
    }  # fmt: skip
    wanted = AclFilter(principal=f"User:{name}")
    await steps.plan("/acl-add", **values)
    assert await steps.admin.describe_acls(wanted) == []
    await steps.done("/acl-add", **values)
    (entry,) = await steps.admin.describe_acls(wanted)
    assert (entry.acl.operation.word, entry.acl.host) == ("Write", "10.1.2.3")
    same = await steps.plan("/acl-add", **values)
    assert same["plan"]["is_needed"] is False
    steps.reader.console.logins.ask_anew()
    shown = await steps.reader.get(f"/access?q={name}")
    assert "/acl-remove?" in shown.text
    told = await steps.done("/acl-remove", **values)
    assert await steps.admin.describe_acls(wanted) == []
    await steps.undo(told)
    assert len(await steps.admin.describe_acls(wanted)) == 1
    wrong = await steps.plan("/acl-add", **{**values, "principal": "bob"})
    assert "no principal" in wrong["problem"]


async def quotas(steps: Steps, name: str) -> None:
    """Set, changed, and put back to what it was."""

    async def held() -> dict[str, float]:
        found = await describe_quotas(steps.admin.cluster, {"user": name})
        return dict(found[0].quotas) if found else {}

    await steps.done("/quota-set", user=name, quotas="producer_byte_rate=1000")
    assert await held() == {"producer_byte_rate": 1000.0}
    told = await steps.done(
        "/quota-set", user=name, quotas="producer_byte_rate=\nrequest_percentage=50.5"
    )
    assert await held() == {"request_percentage": 50.5}
    await steps.undo(told)
    assert await held() == {"producer_byte_rate": 1000.0}
    wrong = await steps.plan("/quota-set", user=name, quotas="producer_byte_rate=much")
    assert "must be a number" in wrong["problem"]


async def users(steps: Steps, name: str) -> None:
    """A password is set and taken away; it stands in no answer."""
    values = {"user": name, "mechanism": "SCRAM-SHA-512"}
    empty = await steps.apply(await steps.plan("/user-set", **values))
    assert empty.status_code == 400
    await steps.done("/user-set", secret=PASSWORD, **values)
    assert (await describe_scram_users(steps.admin.cluster))[name] == {"SCRAM-SHA-512": 4096}
    await steps.done("/user-remove", **values)
    assert name not in await describe_scram_users(steps.admin.cluster)
    gone = await steps.plan("/user-remove", **values)
    assert "has no SCRAM-SHA-512" in gone["problem"]


async def transactions(steps: Steps, topic: str) -> None:
    """One that hangs is found and aborted; of one that is not there nothing can be."""
    bootstrap = steps.reader.console.logins._bootstrap
    data = transactional_batch([b"nobody's"], STRANGER, 0, 7, time.time_ns() // 1_000_000 - AGE_MS)
    with RawConnection(leader_of(bootstrap, topic, 0)) as link:
        at = produce(link, topic, 0, data, transactional_id="gone")
    assert at.error == 0
    found = await steps.reader.json(f"/hanging.json?topic={topic}")
    (row,) = found["hanging"]
    assert (row["start_offset"], row["producer_id"]) == (at.base_offset, STRANGER)
    values = {"topic": topic, "partition": "0", "start_offset": str(at.base_offset)}
    await steps.done("/transaction-abort", **values)
    assert (await steps.reader.json(f"/hanging.json?topic={topic}"))["hanging"] == []
    gone = await steps.plan("/transaction-abort", **values)
    assert "no transaction is open" in gone["problem"]


async def all_steps(reader: Reader, admin: Admin, name: str) -> Steps:
    """Everything, in one cluster; the steps, for what is to be looked at besides."""
    steps = Steps(reader, admin)
    kept = f"{name}-kept"
    await admin.create_topics([NewTopic(name=kept, partitions=2, replication_factor=1)])
    await topics(steps, name)
    await settings(steps, kept)
    await groups(steps, kept, f"{name}-group")
    await acls(steps, name)
    await quotas(steps, name)
    await users(steps, name)
    await transactions(steps, kept)
    return steps
