"""What can go wrong with jobs, in the words of the domain; the HTTP API gives these their statuses at the edge."""

from __future__ import annotations

from enum import StrEnum

from penstock.domain.errors import PenstockError


class JobError(PenstockError):
    """A fault of a caller of the job service."""


class JobDoesNotExist(JobError):
    """No job has this id, or it was finished and forgotten; or the caller must not see it, which reads the same."""

    def __init__(self, job_id: str) -> None:
        super().__init__(f"There is no job {job_id!r}.")


class JobExists(JobError):
    """Another job has the id that the caller chose. The error does not describe it: it may be another tenant's."""

    def __init__(self, reason: str = "Another job has this id.") -> None:
        super().__init__(reason)


class JobQueueDoesNotExist(JobError):
    """No job queue has this name."""


class JobQueueExists(JobError):
    """A job queue of this name exists with other settings."""


class JobQueueChanged(JobError):
    """The queue was changed by somebody else since it was read."""


class LeaseLost(JobError):
    """The lease is over: the job was offered again, finished or taken back. Nothing was changed."""


class JobStateConflict(JobError):
    """The job is not in a state in which this can happen to it."""


class IdempotencyKeyReused(JobError):
    """The same key came with another request before."""


class IdempotencyKeyBusy(JobError):
    """The first request with this key is still being stored."""


class IdempotencyKeyNeeded(JobError):
    """A strict queue takes no job without an idempotency key."""


class JobInvalid(JobError):
    """What was asked for makes no sense, or is beyond a limit. `field` names the part of the request, if it is one."""

    def __init__(self, message: str, field: str = "") -> None:
        super().__init__(message)
        self.field = field


class JobTooLarge(JobInvalid):
    """A payload, a result, an event or a whole request is larger than may be."""


class LeaseTokenInvalid(JobError):
    """The text is no lease token of this service."""


class TooMany(StrEnum):
    """Why a job was turned away for now; clients read this."""

    QUEUE_FULL = "queue_full"
    RATE_GLOBAL = "rate_global"
    RATE_TENANT = "rate_tenant"


class JobRefused(JobError):
    """There are too many: try again after `retry_after_ms`."""

    def __init__(self, message: str, why: TooMany, retry_after_ms: int) -> None:
        super().__init__(message)
        self.why = why
        self.retry_after_ms = retry_after_ms


class TooManyEvents(JobError):
    """The job has as many events as its queue allows."""


class ScheduleDoesNotExist(JobError):
    """No schedule has this name; or the caller must not see it, which reads the same."""

    def __init__(self, name: str) -> None:
        super().__init__(f"There is no schedule {name!r}.")


class ScheduleInvalid(JobError):
    """The cron expression, the time zone or the interval makes no sense."""


class OperationDoesNotExist(JobError):
    """No operation has this id; or the caller must not see it, which reads the same."""

    def __init__(self, operation_id: str) -> None:
        super().__init__(f"There is no operation {operation_id!r}.")


class GatherDoesNotExist(JobError):
    """No gather has this id; or the caller must not see it, which reads the same."""

    def __init__(self, gather_id: str) -> None:
        super().__init__(f"There is no gather {gather_id!r}.")


class GatherExists(JobError):
    """A gather of this id exists with another continuation, error policy or tenant."""


class StreamDoesNotExist(JobError):
    """No stream of offers of this server has this name; it may have ended."""


class NotAuthenticated(JobError):
    """It is not known who asks."""
