"""The names of the tasks framework: Django's own from version 6 on, or those of its backport, django-tasks."""

from __future__ import annotations

import django
from django.conf import settings
from django.core.exceptions import ImproperlyConfigured


def _has_backport() -> bool:
    """Return whether tasks are those of the backport: before Django 6, and where a project still has it installed."""
    if django.VERSION < (6,):
        return True
    installed = settings.INSTALLED_APPS if settings.configured else ()
    return any(app == "django_tasks" or app.startswith("django_tasks.") for app in installed)


if _has_backport():
    try:
        from django_tasks import task_backends
    except ImportError as error:
        raise ImproperlyConfigured(
            f"Django {django.get_version()} has no tasks framework. Upgrade to Django 6, or: pip install django-tasks"
        ) from error
    from django_tasks.backends.base import BaseTaskBackend
    from django_tasks.base import (
        DEFAULT_TASK_BACKEND_ALIAS,
        Task,
        TaskContext,
        TaskError,
        TaskResult,
        TaskResultStatus,
    )

    if not hasattr(TaskResultStatus, "SUCCESSFUL"):
        raise ImproperlyConfigured("This needs django-tasks 0.12 or later: pip install 'django-tasks>=0.12'")
    from django_tasks.exceptions import InvalidTaskBackendError as InvalidTaskBackend
    from django_tasks.exceptions import InvalidTaskError as InvalidTask
    from django_tasks.exceptions import TaskResultDoesNotExist
    from django_tasks.signals import task_enqueued, task_finished, task_started
    from django_tasks.utils import normalize_json
else:
    from django.tasks import task_backends
    from django.tasks.backends.base import BaseTaskBackend
    from django.tasks.base import (
        DEFAULT_TASK_BACKEND_ALIAS,
        Task,
        TaskContext,
        TaskError,
        TaskResult,
        TaskResultStatus,
    )
    from django.tasks.exceptions import (
        InvalidTask,
        InvalidTaskBackend,
        TaskResultDoesNotExist,
    )
    from django.tasks.signals import task_enqueued, task_finished, task_started
    from django.utils.json import normalize_json

__all__ = [
    "DEFAULT_TASK_BACKEND_ALIAS",
    "BaseTaskBackend",
    "InvalidTask",
    "InvalidTaskBackend",
    "Task",
    "TaskContext",
    "TaskError",
    "TaskResult",
    "TaskResultDoesNotExist",
    "TaskResultStatus",
    "normalize_json",
    "task_backends",
    "task_enqueued",
    "task_finished",
    "task_started",
]
