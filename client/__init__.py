"""The asyncio client library, which is also how nodes talk to each other and to ZooKeeper."""
