"""Which place of the job API takes which scope, all of them in one table."""

from __future__ import annotations

from penstock.server.jobs.access import Permission, Scope

_ENQUEUE = Permission(Scope.ENQUEUE, of_tenant=True)
_WORK = Permission(Scope.WORK)
_READ_OWN = Permission(Scope.READ, of_tenant=True)
_READ_ALL = Permission(Scope.READ)
_ADMIN = Permission(Scope.ADMIN)

PERMISSIONS: dict[str, Permission] = {
    "EnqueueJob": _ENQUEUE,
    "EnqueueJobs": _ENQUEUE,
    "EnqueueLoosely": _ENQUEUE,
    "OpenGather": _ENQUEUE,
    "FillGather": _ENQUEUE,
    "CancelGather": _ENQUEUE,
    "CancelJob": _ENQUEUE,
    "RetryJob": _ENQUEUE,
    "Dequeue": _WORK,
    "AddCredit": _WORK,
    "ReportBatch": _WORK,
    "Accept": _WORK,
    "Heartbeat": _WORK,
    "Complete": _WORK,
    "Fail": _WORK,
    "Release": _WORK,
    "Snooze": _WORK,
    "PublishEvent": _WORK,
    "ListJobs": _READ_OWN,
    "GetJob": _READ_OWN,
    "GetResult": _READ_OWN,
    "FollowEvents": _READ_OWN,
    "GetGather": _READ_OWN,
    "GetGatherResults": _READ_OWN,
    "ListDead": _READ_OWN,
    "ListAllDead": _READ_OWN,
    "GroupDead": _READ_ALL,
    "ListWorkers": _READ_ALL,
    "ListQueues": _READ_ALL,
    "GetQueue": _READ_ALL,
    "ListOperations": _READ_ALL,
    "GetOperation": _READ_ALL,
    "ListSchedules": _READ_ALL,
    "GetSchedule": _READ_ALL,
    "GetOwner": _READ_ALL,
    "CreateQueue": _ADMIN,
    "PutQueue": _ADMIN,
    "ChangeQueue": _ADMIN,
    "DeleteQueue": _ADMIN,
    "PauseQueue": _ADMIN,
    "ResumeQueue": _ADMIN,
    "PurgeQueue": _ADMIN,
    "RequeueDead": _ADMIN,
    "RequeueLoosely": _ADMIN,
    "CancelOperation": _ADMIN,
    "SaveSchedule": _ADMIN,
    "PutSchedule": _ADMIN,
    "DeleteSchedule": _ADMIN,
    "HandOver": _ADMIN,
}
"""By the name of a route. A lease's token is itself the right to report on that job, besides the scope."""

QUEUE_PATHS = "/v1/queues/{name}"
"""What the paths of routes begin with that are about the queue that they name."""
