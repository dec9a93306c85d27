"""What a store says it runs on."""

from __future__ import annotations

import re

from penstock.store.port import Store


async def test_a_store_names_its_database_and_its_schema(store: Store) -> None:
    version = await store.version()
    assert re.fullmatch(r"(SQLite|PostgreSQL) \d+(\.\d+)+", version.database)
    assert version.schema > 0
