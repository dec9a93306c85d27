"""Which tables a consumer's settings name, and how they are opened."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from penstock.lab.endpoints import client, endpoint_of
from penstock.lab.environment import Missing
from penstock.lab.tables.dynamodb import DynamoSideEffects, DynamoStatus
from penstock.lab.tables.places import FILE, SqlitePlace
from penstock.lab.tables.sqlite import SqliteSideEffects, SqliteStatus

if TYPE_CHECKING:
    from penstock.lab.consumer_settings import ConsumerSettings
    from penstock.lab.tables.port import SideEffectsTable, StatusTable


class Tables(NamedTuple):
    """The tables of a consumer; None where its settings name none."""

    status: StatusTable | None
    side_effects: SideEffectsTable | None

    def close(self) -> None:
        """Close both."""
        for table in self:
            if table is not None:
                table.close()


def open_tables(settings: ConsumerSettings) -> Tables:
    """Open the tables that the settings name; raises `Missing` if a file has them not."""
    status, side_effects = settings.message_status_table, settings.message_side_effects_table
    if not status and not side_effects:
        return Tables(None, None)
    url = tables_url(settings)
    scheme, _, place = url.partition(":")
    if scheme == "sqlite":
        for name in filter(None, (status, side_effects)):
            if SqlitePlace(place).key_of(name) is None:
                raise Missing(f"There is no table {name} in {place}.")
        return Tables(
            SqliteStatus(place, status) if status else None,
            SqliteSideEffects(place, side_effects) if side_effects else None,
        )
    dynamodb = client("dynamodb", endpoint=place or None, region=settings.aws_region or None)
    return Tables(
        DynamoStatus(dynamodb, status) if status else None,
        DynamoSideEffects(dynamodb, side_effects) if side_effects else None,
    )


def tables_url(settings: ConsumerSettings) -> str:
    """Return where the tables are: what the settings say, DynamoDB for a queue on AWS, else a SQLite file."""
    if settings.tables_url:
        return settings.tables_url
    return "dynamodb:" if endpoint_of(settings.queue_url) is None else f"sqlite:{FILE}"
