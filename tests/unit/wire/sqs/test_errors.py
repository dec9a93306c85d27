from __future__ import annotations

import importlib
import pkgutil

import pytest

import penstock.domain
import penstock.engine
import penstock.server
import penstock.store
import penstock.wire
from penstock.domain import errors
from penstock.domain.errors import PenstockError
from penstock.domain.job_errors import JobError
from penstock.wire.sqs.errors import SQS_ERRORS, sqs_error, sqs_error_named

SERVER_SIDE = (penstock.domain, penstock.wire, penstock.store, penstock.engine, penstock.server)


def every_subclass_of(kind: type[PenstockError]) -> set[type[PenstockError]]:
    """Return all errors of this kind that the server can meet; what users import has its own."""
    homes = tuple(f"{package.__name__}." for package in SERVER_SIDE)
    found = {child for child in kind.__subclasses__() if child.__module__.startswith(homes)}
    return found.union(*(every_subclass_of(child) for child in found))


def test_every_error_has_an_sqs_name() -> None:
    for package in SERVER_SIDE:
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            importlib.import_module(module.name)
    # Jobs are not told of in SQS: the job API has names of its own for what goes wrong with them.
    assert set(SQS_ERRORS) == every_subclass_of(PenstockError) - every_subclass_of(JobError) - {JobError}


TOLD = [
    (errors.QueueDoesNotExist, "com.amazonaws.sqs#QueueDoesNotExist", "AWS.SimpleQueueService.NonExistentQueue", 400),
    (errors.QueueNameExists, "com.amazonaws.sqs#QueueNameExists", "QueueAlreadyExists", 400),
    (
        errors.QueueDeletedRecently,
        "com.amazonaws.sqs#QueueDeletedRecently",
        "AWS.SimpleQueueService.QueueDeletedRecently",
        400,
    ),
    (
        errors.PurgeInProgress,
        "com.amazonaws.sqs#PurgeQueueInProgress",
        "AWS.SimpleQueueService.PurgeQueueInProgress",
        403,
    ),
    (errors.OverLimit, "com.amazonaws.sqs#OverLimit", "OverLimit", 403),
    (errors.ReceiptHandleInvalid, "com.amazonaws.sqs#ReceiptHandleIsInvalid", "ReceiptHandleIsInvalid", 404),
    (
        errors.ReceiptHandleExpired,
        "com.amazon.coral.service#InvalidParameterValueException",
        "InvalidParameterValue",
        400,
    ),
    (errors.InvalidParameter, "com.amazon.coral.service#InvalidParameterValueException", "InvalidParameterValue", 400),
    (errors.MissingParameter, "com.amazon.coral.service#MissingRequiredParameterException", "MissingParameter", 400),
    (errors.InvalidAttributeName, "com.amazonaws.sqs#InvalidAttributeName", "InvalidAttributeName", 400),
    (
        errors.BatchTooManyEntries,
        "com.amazonaws.sqs#TooManyEntriesInBatchRequest",
        "AWS.SimpleQueueService.TooManyEntriesInBatchRequest",
        400,
    ),
    (errors.MoveTaskDoesNotExist, "com.amazonaws.sqs#ResourceNotFoundException", "ResourceNotFoundException", 404),
    (errors.StoreUnavailable, "com.amazon.coral.service#ServiceUnavailableException", "ServiceUnavailable", 503),
]


@pytest.mark.parametrize(("kind", "shape", "code", "status"), TOLD)
def test_errors_are_told_as_amazon_tells_them(kind: type[PenstockError], shape: str, code: str, status: int) -> None:
    error = sqs_error(kind("Why"))
    assert (error.type, error.code, error.status) == (shape, code, status)
    assert sqs_error_named(kind.__name__) is error
    assert error.sender_fault == (status < 500)
