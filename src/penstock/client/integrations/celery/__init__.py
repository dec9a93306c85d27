"""Move from Celery task by task, while both fleets run."""

from penstock.client.integrations.celery.adopting import AdoptedTask, adopt
from penstock.client.integrations.celery.errors import CeleryUnsupported
from penstock.client.integrations.celery.moving import Moves, move
from penstock.client.integrations.celery.results import MovedResult

__all__ = ["AdoptedTask", "CeleryUnsupported", "MovedResult", "Moves", "adopt", "move"]
