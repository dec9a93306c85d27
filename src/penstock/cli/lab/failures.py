"""Why a command of the lab did not work, by what was raised, and its exit code."""

from __future__ import annotations

import shlex
from collections.abc import Collection, Iterable
from typing import NamedTuple

from penstock.cli.failures import DENIED, UNREACHABLE, USAGE, Failure
from penstock.cli.terminal.suggestions import closest

NOT_FOUND, CONDITION_FALSE = 3, 4


class Sought(NamedTuple):
    """The queue that a command is about, as it was named."""

    url: str
    region: str | None
    profile: str | None = None

    def __str__(self) -> str:
        from penstock.lab.endpoints import endpoint_of, region_of, where
        from penstock.lab.payloads import queue_name

        endpoint = endpoint_of(self.url)
        return f"{queue_name(self.url)} {where(region_of(endpoint, self.region, self.profile), endpoint)}"


def unknown_scenario(name: str, names: Iterable[str]) -> Failure:
    """Return the failure for a scenario that there is not."""
    meant = closest(name, names)
    question = f" Did you mean {meant}?" if meant else ""
    return Failure(
        f"No scenario named {name}.{question}",
        hint=f"penstock lab run {shlex.quote(meant)}" if meant else "penstock lab ls",
        exit_code=USAGE,
    )


def check_names(given: Iterable[str], names: Collection[str]) -> None:
    """Raise the failure for the first name that no scenario has."""
    for name in given:
        if name not in names:
            raise unknown_scenario(name, names)


def failure_of(error: Exception, queue: Sought | None = None) -> Failure:
    """Return the failure that an error stands for: the lab's own, or one of boto3 by its code."""
    from penstock.domain.errors import StoreUrlInvalid
    from penstock.lab.archive import ArchiveBroken
    from penstock.lab.env_file import NotOurs
    from penstock.lab.environment import Missing
    from penstock.lab.stage import ScenarioFailed
    from penstock.lab.variables import BadValue

    for kind, hint, code in (
        (BadValue, "", USAGE),
        (StoreUrlInvalid, "", USAGE),
        (Missing, "penstock lab up, or make infra-up TARGET=aws", NOT_FOUND),
        (NotOurs, "move it, or name another file with --env", 1),
        (ArchiveBroken, "remove the file; the next run writes it again", 1),
    ):
        if isinstance(error, kind):
            return Failure(str(error), hint=hint, exit_code=code)
    if isinstance(error, ScenarioFailed):
        what, *why = str(error).splitlines()
        return Failure(what, why=why)
    if isinstance(error, ModuleNotFoundError) and error.name in {"boto3", "botocore"}:
        return Failure("The lab needs boto3.", hint="pip install 'penstock[sqs]'")
    return _credentials_failure(error) or _boto_failure(error, queue) or Failure(str(error) or type(error).__name__)


def _credentials_failure(error: Exception) -> Failure | None:
    """Read errors of boto3 by their codes, so that it need not be loaded."""
    from penstock.client.sqs.problems import code_of, is_denied, lacks_credentials

    why = [str(error)]
    code = code_of(error)
    if code == "ProfileNotFound":
        what = "There is no such profile in the AWS configuration."
        return Failure(what, why=why, hint="aws configure list-profiles", exit_code=USAGE)
    if code == "NoCredentialsError":
        what, why, hint = "No AWS credentials found.", [], "aws configure, or set AWS_PROFILE"
    elif lacks_credentials(error):
        what, hint = "The credentials are not accepted.", "set AWS_PROFILE, or AWS_ACCESS_KEY_ID and its secret"
    elif is_denied(error):
        what, hint = "The credentials do not allow this.", "set AWS_PROFILE to a profile that may do it"
    else:
        return None
    return Failure(what, why=why, hint=hint, kind="denied", exit_code=DENIED)


def _boto_failure(error: Exception, queue: Sought | None) -> Failure | None:
    """Read the other errors of boto3."""
    from penstock.client.sqs.problems import code_of, is_missing, is_unreachable
    from penstock.lab.environment import was_deleted_recently

    why = [str(error)]
    # An error of the file system is one of this machine.
    if is_unreachable(error) and not isinstance(error, OSError):
        hint = "penstock lab up, or check the URL of the endpoint"
        return Failure("Cannot reach the endpoint.", why=why, hint=hint, exit_code=UNREACHABLE)
    if is_missing(error):
        what = "There is no such queue." if queue is None else f"There is no queue {queue}."
        hint = "penstock lab up, or set AWS_REGION to the region of the queue"
        return Failure(what, why=why if queue is None else [], hint=hint, exit_code=NOT_FOUND)
    if code_of(error).startswith("ResourceNotFound"):
        return Failure("There is no such table.", why=why, hint="penstock lab up", exit_code=NOT_FOUND)
    if not hasattr(error, "response"):
        return None
    if was_deleted_recently(error):
        what = "A queue of this name was deleted less than 60 s ago."
        return Failure(what, why=why, hint="run it again in a minute, or penstock serve --name-reuse-delay 0")
    return Failure("The endpoint refused a call.", why=why)
