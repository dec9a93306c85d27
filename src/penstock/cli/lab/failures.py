"""Why a command of the lab did not work, by what was raised, and its exit code."""

from __future__ import annotations

import shlex
from collections.abc import Collection, Iterable

from penstock.cli.failures import DENIED, UNREACHABLE, USAGE, Failure
from penstock.cli.terminal.suggestions import closest

NOT_FOUND, CONDITION_FALSE = 3, 4


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


def failure_of(error: Exception) -> Failure:
    """Return the failure that an error stands for: the lab's own, or one of boto3 by its code."""
    from penstock.lab.archive import ArchiveBroken
    from penstock.lab.env_file import NotOurs
    from penstock.lab.environment import Missing
    from penstock.lab.stage import ScenarioFailed
    from penstock.lab.variables import BadValue

    for kind, hint, code in (
        (BadValue, "", USAGE),
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
    return _boto_failure(error) or Failure(str(error) or type(error).__name__)


def _boto_failure(error: Exception) -> Failure | None:
    """Read errors of boto3 by their codes, so that it need not be loaded."""
    from penstock.client.sqs.problems import code_of, is_denied, is_missing, is_unreachable, lacks_credentials
    from penstock.lab.environment import was_deleted_recently

    # An error of the file system is one of this machine.
    if is_unreachable(error) and not isinstance(error, OSError):
        return Failure("Cannot reach the endpoint.", why=[str(error)], exit_code=UNREACHABLE)
    if is_denied(error) or lacks_credentials(error):
        return Failure("The credentials do not allow this.", why=[str(error)], kind="denied", exit_code=DENIED)
    if is_missing(error) or code_of(error).startswith("ResourceNotFound"):
        return Failure("There is no such queue or table.", why=[str(error)], exit_code=NOT_FOUND)
    if not hasattr(error, "response"):
        return None
    if was_deleted_recently(error):
        what = "A queue of this name was deleted less than 60 s ago."
        return Failure(
            what, why=[str(error)], hint="the same again in a minute, or penstock serve --name-reuse-delay 0"
        )
    return Failure("The endpoint refused a call.", why=[str(error)])
