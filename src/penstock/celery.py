"""Move from Celery task by task, while both fleets run: `from penstock.celery import move`."""

try:
    from penstock.client.integrations.celery import (
        AdoptedTask,
        CeleryUnsupported,
        MovedResult,
        Moves,
        adopt,
        move,
    )
except ModuleNotFoundError as error:
    if (error.name or "").partition(".")[0] not in {"celery", "kombu"}:
        raise
    raise ModuleNotFoundError("penstock.celery needs Celery, which your app has: pip install celery.") from error

__all__ = ["AdoptedTask", "CeleryUnsupported", "MovedResult", "Moves", "adopt", "move"]
