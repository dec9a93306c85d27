"""What Django's documentation promises of a task backend, asked of ours, with a real server and a real worker.

Run by `python -m unittest contract` in this folder, with PENSTOCK_URL, SHOP_DATABASE and SHOP_LEDGER set.
"""

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
import unittest
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

import django

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "project.settings")
django.setup()

from django.core.management import call_command
from django.db import connection, transaction
from django.test.utils import override_settings
from django.utils import timezone
from shop import tasks
from shop.models import Order

from penstock import Retry, errors
from penstock.django import PenstockBackend, options
from penstock.django.framework import (
    InvalidTask,
    InvalidTaskBackend,
    TaskResultDoesNotExist,
    TaskResultStatus,
    task_backends,
    task_enqueued,
)

try:
    from django.tasks import default_task_backend, task
    from django.tasks.exceptions import TaskResultMismatch
except ImportError:
    from django_tasks import default_task_backend, task
    from django_tasks.exceptions import TaskResultMismatch

PATIENCE_S = float(os.environ.get("SHOP_PATIENCE_S", "40"))
LEDGER = Path(os.environ["SHOP_LEDGER"])
NOBODY = "00000000-0000-4000-8000-000000000000"


class WorkerProcess:
    """`manage.py penstock_worker`."""

    def __init__(self, *flags):
        self.errors = tempfile.TemporaryFile("w+")
        self.process = subprocess.Popen(
            [sys.executable, "manage.py", "penstock_worker", "--log-format", "logfmt", "--grace", "2s", *flags],
            cwd=Path(__file__).parent,
            stderr=self.errors,
            stdin=subprocess.DEVNULL,
        )

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(PATIENCE_S)

    @property
    def text(self):
        self.errors.seek(0)
        return self.errors.read()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()
        self.errors.close()


worker = None


def setUpModule():
    global worker
    call_command("migrate", run_syncdb=True, verbosity=0)
    LEDGER.touch()
    worker = WorkerProcess("-q", "default:4", "-q", "mail")


def tearDownModule():
    with worker:
        assert worker.stop() == 0, worker.text


def until(holds):
    deadline = time.monotonic() + PATIENCE_S
    while not (found := holds()):
        assert time.monotonic() < deadline, worker.text
        time.sleep(0.01)
    return found


def finished(result):
    """Wait until a result is finished, by `refresh`."""

    def look():
        result.refresh()
        return result.is_finished

    until(look)
    return result


def files_of(pid):
    """Return the files that a process has open."""
    found = set()
    for file in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # It was closed just now.
            found.add(str(file.readlink()))
    return found


def signals_of(result):
    return [line.split() for line in LEDGER.read_text().splitlines() if result.id in line]


class Features(unittest.TestCase):
    def test_the_backend_is_ours_and_says_what_it_supports(self):
        backend = task_backends["default"]
        self.assertIsInstance(backend, PenstockBackend)
        self.assertTrue(backend.supports_defer)
        self.assertTrue(backend.supports_async_task)
        self.assertTrue(backend.supports_get_result)
        self.assertTrue(backend.supports_priority)

    def test_the_system_checks_find_nothing(self):
        call_command("check")
        self.assertEqual(list(task_backends["default"].check()), [])


class Enqueueing(unittest.TestCase):
    def test_enqueue_returns_a_ready_result(self):
        with override_settings(USE_TZ=True):
            result = tasks.note_order.using(queue_name="ordered").enqueue("never")
        self.assertIsInstance(result.id, str)
        self.assertLess(len(result.id), 64)
        self.assertEqual(result.status, TaskResultStatus.READY)
        self.assertFalse(result.is_finished)
        self.assertTrue(timezone.is_aware(result.enqueued_at))
        for empty in (result.started_at, result.last_attempted_at, result.finished_at):
            self.assertIsNone(empty)
        self.assertEqual((result.args, result.kwargs, result.backend), (["never"], {}, "default"))
        self.assertEqual((result.errors, result.worker_ids, result.attempts), ([], [], 0))
        with self.assertRaisesRegex(ValueError, "not finished"):
            result.return_value
        again = tasks.note_order.get_result(result.id)
        self.assertEqual(again.status, TaskResultStatus.READY)
        self.assertEqual(again.args, ["never"])
        task_backends["default"].app.sync.jobs.cancel(result.id)

    def test_a_task_runs_and_its_result_can_be_had_anywhere(self):
        before = timezone.now() - timedelta(seconds=1)
        result = finished(tasks.add.enqueue(1, b=2))
        self.assertEqual(result.status, TaskResultStatus.SUCCESSFUL)
        self.assertEqual(result.return_value, 3)
        self.assertEqual((result.args, result.kwargs), ([1], {"b": 2}))
        self.assertEqual(result.started_at, result.last_attempted_at)
        self.assertTrue(before <= result.enqueued_at <= result.started_at <= result.finished_at)
        self.assertEqual((result.attempts, len(result.worker_ids)), (1, 1))
        self.assertTrue(result.worker_ids[0].startswith("project-"))
        seen = []
        thread = threading.Thread(target=lambda: seen.append(default_task_backend.get_result(result.id)))
        thread.start()
        thread.join()
        self.assertEqual((seen[0].return_value, seen[0].task), (3, tasks.add))

    def test_none_is_a_return_value_too(self):
        tasks_done = finished(tasks.echo.enqueue())
        self.assertEqual(tasks_done.return_value, {"args": [], "kwargs": {}})

    def test_async_code_uses_the_async_methods(self):
        async def go():
            result = await tasks.aadd.aenqueue(3, 4)
            while not result.is_finished:
                await asyncio.sleep(0.01)
                await result.arefresh()
            again = await tasks.aadd.aget_result(result.id)
            with self.assertRaises(TaskResultDoesNotExist):
                await tasks.aadd.aget_result(NOBODY)
            with self.assertRaises(TaskResultMismatch):
                await tasks.add.aget_result(result.id)
            await task_backends["default"].app.close_for_now()
            return again.return_value

        self.assertEqual(asyncio.run(asyncio.wait_for(go(), PATIENCE_S)), 7)

    def test_enqueue_on_an_event_loop_names_the_async_method(self):
        async def go():
            with self.assertRaisesRegex(errors.WrongThread, "Await aenqueue instead"):
                tasks.add.enqueue(1)
            with self.assertRaisesRegex(errors.WrongThread, "Await aget_result instead"):
                tasks.add.get_result(NOBODY)

        asyncio.run(go())

    def test_call_runs_here_and_now(self):
        self.assertEqual(tasks.add.call(1, 2), 3)
        self.assertEqual(tasks.aadd.call(1, 2), 3)
        self.assertEqual(asyncio.run(tasks.add.acall(1, 2)), 3)
        self.assertEqual(asyncio.run(tasks.aadd.acall(1, 2)), 3)

    def test_a_task_can_enqueue_another(self):
        first = finished(tasks.again.enqueue(4))
        self.assertEqual(finished(tasks.add.get_result(first.return_value)).return_value, 5)

    def test_a_function_that_is_made_a_task_under_another_name_works(self):
        self.assertEqual(finished(tasks.named_otherwise.enqueue(1)).return_value, 1)

    def test_the_signal_is_sent_once_it_is_enqueued_and_a_bad_receiver_does_no_harm(self):
        seen = []

        def receive(sender, task_result, **kwargs):
            seen.append((sender, task_result.id, task_result.enqueued_at is not None))
            raise RuntimeError("a bad receiver")

        task_enqueued.connect(receive)
        try:
            result = tasks.add.enqueue(1)
        finally:
            task_enqueued.disconnect(receive)
        self.assertEqual(seen, [(PenstockBackend, result.id, True)])


class Arguments(unittest.TestCase):
    def test_they_go_through_json(self):
        result = tasks.echo.enqueue((1, 2, 3), {4: None}, b"bytes", word=TaskResultStatus.READY, large=10**25)
        sent = [[1, 2, 3], {"4": None}, "bytes"]
        self.assertEqual((result.args, result.kwargs), (sent, {"word": "READY", "large": 10**25}))
        self.assertEqual(finished(result).return_value, {"args": sent, "kwargs": {"word": "READY", "large": 10**25}})
        self.assertEqual(tasks.echo.get_result(result.id).args, sent)

    def test_what_json_has_not_is_refused_before_anything_is_sent(self):
        for wrong in (datetime.now(UTC), {1, 2}, object(), b"\xff", float("nan")):
            with self.assertRaisesRegex((TypeError, ValueError), "shop.tasks.echo cannot be called"):
                tasks.echo.enqueue(wrong)

    def test_arguments_that_do_not_fit_are_refused_in_the_words_of_python(self):
        with self.assertRaisesRegex(TypeError, "missing a required argument: 'a'"):
            tasks.add.enqueue()
        with self.assertRaisesRegex(TypeError, "unexpected keyword argument 'c'"):
            tasks.with_context.enqueue(1, c=2)

    def test_a_result_that_json_has_not_fails_the_task(self):
        result = finished(tasks.returns_what_json_has_not.enqueue())
        self.assertEqual(result.status, TaskResultStatus.FAILED)
        self.assertEqual(result.errors[0].exception_class, TypeError)


class Failing(unittest.TestCase):
    def test_errors_have_the_class_and_the_traceback(self):
        result = finished(tasks.fail.enqueue("tea"))
        self.assertEqual(result.status, TaskResultStatus.FAILED)
        [error] = result.errors
        self.assertEqual(error.exception_class_path, "shop.tasks.OutOfStock")
        self.assertIs(error.exception_class, tasks.OutOfStock)
        for part in (
            "Traceback (most recent call last)",
            "shop/tasks.py",
            "in fail",
            "KeyError: 'tea'",
            "OutOfStock: tea",
        ):
            self.assertIn(part, error.traceback)
        self.assertNotIn("penstock/django/running.py", error.traceback)
        self.assertEqual(result.attempts, 1)
        self.assertIsNotNone(result.finished_at)
        with self.assertRaisesRegex(ValueError, "failed"):
            result.return_value

    def test_builtin_classes_and_coroutines_too(self):
        self.assertEqual(finished(tasks.divide.enqueue(0)).errors[0].exception_class, ZeroDivisionError)
        result = finished(tasks.afail.enqueue())
        self.assertEqual(result.errors[0].exception_class_path, "builtins.ValueError")
        self.assertIn("of a coroutine", result.errors[0].traceback)

    def test_retries_are_shown_with_each_error(self):
        result = finished(tasks.flaky.enqueue(3))
        self.assertEqual((result.status, result.attempts), (TaskResultStatus.SUCCESSFUL, 3))
        self.assertEqual(result.return_value, ["ConnectionError", "ConnectionError"])
        self.assertEqual([error.exception_class for error in result.errors], [ConnectionError] * 2)
        self.assertLess(result.started_at, result.last_attempted_at)
        noted = [line[0] for line in signals_of(result)]
        self.assertEqual(noted, ["started", "started", "started", "finished"])

    def test_the_end_of_retries_is_a_failure_that_is_signalled_once(self):
        result = finished(tasks.flaky.enqueue(9))
        self.assertEqual((result.status, result.attempts, len(result.errors)), (TaskResultStatus.FAILED, 3, 3))
        self.assertEqual(signals_of(result)[-1], ["finished", result.id, "FAILED", "3", "3"])
        self.assertEqual([line[0] for line in signals_of(result)].count("finished"), 1)

    def test_a_permanent_error_ends_it_at_once(self):
        result = finished(tasks.permanently.enqueue(0))
        self.assertEqual((result.status, result.attempts), (TaskResultStatus.FAILED, 1))
        self.assertEqual(signals_of(result)[-1][0], "finished")

    def test_the_settings_of_a_backend_can_retry(self):
        result = finished(tasks.of_another_backend.enqueue())
        self.assertEqual((result.status, result.attempts, result.backend), (TaskResultStatus.FAILED, 2, "retried"))

    def test_a_timeout_is_a_failure(self):
        result = finished(tasks.too_long.enqueue())
        self.assertEqual((result.status, result.errors[0].exception_class), (TaskResultStatus.FAILED, TimeoutError))

    def test_snooze_and_discard_do_what_they_do_elsewhere(self):
        snoozed = finished(tasks.snoozing.enqueue())
        self.assertEqual((snoozed.return_value, snoozed.errors), (2, []))
        discarded = finished(tasks.discarding.enqueue())
        self.assertEqual(discarded.status, TaskResultStatus.FAILED)
        self.assertIn("nothing to do", discarded.errors[0].traceback)

    def test_a_cancelled_job_is_a_failure(self):
        result = tasks.note_order.enqueue("never")
        task_backends["default"].app.sync.jobs.cancel(result.id)
        result.refresh()
        self.assertEqual(result.status, TaskResultStatus.FAILED)
        self.assertIs(result.errors[0].exception_class, errors.JobCancelled)


class Context(unittest.TestCase):
    def test_a_task_that_takes_context_gets_its_result(self):
        result = finished(tasks.with_context.using(priority=-37, queue_name="mail").enqueue(1, word="x"))
        seen = result.return_value
        self.assertEqual(seen.pop("workers"), result.worker_ids)
        self.assertEqual(
            seen,
            {
                "attempt": 1,
                "id": result.id,
                "status": "RUNNING",
                "args": [1],
                "kwargs": {"word": "x"},
                "priority": -37,
                "queue": "mail",
                "number": 1,
                "word": "x",
            },
        )
        self.assertEqual(finished(tasks.awith_context.enqueue()).return_value, 1)

    def test_the_signals_are_sent_in_the_worker(self):
        result = finished(tasks.add.enqueue(1))
        self.assertEqual(
            signals_of(result),
            [["started", result.id, "RUNNING", "1", "0"], ["finished", result.id, "SUCCESSFUL", "1", "0"]],
        )
        self.assertIn("a receiver that fails", worker.text)

    def test_running_is_shown_while_it_runs(self):
        with tempfile.TemporaryDirectory() as folder:
            result = tasks.until_file.enqueue(f"{folder}/go")

            def runs():
                result.refresh()
                return result.status == TaskResultStatus.RUNNING

            until(runs)
            self.assertIsNotNone(result.started_at)
            self.assertIsNone(result.finished_at)
            Path(folder, "go").touch()
            self.assertEqual(finished(result).return_value, "seen")


class Using(unittest.TestCase):
    def test_the_task_of_a_result_has_what_it_was_enqueued_with(self):
        at = timezone.now().replace(microsecond=123456) + timedelta(days=30)
        result = tasks.add.using(priority=37, queue_name="mail", run_after=at).enqueue(1)
        again = default_task_backend.get_result(result.id)
        self.assertEqual((again.task.priority, again.task.queue_name, again.task.run_after), (37, "mail", at))
        self.assertEqual(again.task, result.task)
        self.assertEqual(again.status, TaskResultStatus.READY)
        task_backends["default"].app.sync.jobs.cancel(result.id)

    def test_a_task_does_not_run_before_its_time(self):
        at = timezone.now() + timedelta(seconds=0.5)
        result = finished(tasks.add.using(run_after=at).enqueue(1))
        self.assertGreaterEqual(result.started_at + timedelta(milliseconds=1), at)
        relative = finished(tasks.add.using(run_after=timedelta(seconds=0.2)).enqueue(2))
        self.assertGreaterEqual(relative.started_at, relative.enqueued_at + timedelta(seconds=0.19))
        self.assertEqual(relative.return_value, 2)

    def test_higher_priorities_run_sooner(self):
        words = {"lowest": -100, "low": -1, "plain": 0, "high": 1, "higher": 50, "highest": 100}
        sent = [tasks.note_order.using(priority=value).enqueue(word) for word, value in words.items()]
        self.assertEqual([one.task.priority for one in sent], list(words.values()))
        with WorkerProcess("-q", "ordered:1", "--name", "one-slot") as ordered:
            for one in sent:
                self.assertEqual(finished(one).worker_ids, ["one-slot"])
            self.assertEqual(ordered.stop(), 0, ordered.text)
        ran = [line.removeprefix("ran ") for line in LEDGER.read_text().splitlines() if line.startswith("ran ")]
        self.assertEqual(ran, list(reversed(words)))

    def test_results_that_do_not_exist(self):
        for unknown in (NOBODY, "no id at all", "", "../queues", None, 17):
            with self.assertRaises(TaskResultDoesNotExist):
                default_task_backend.get_result(unknown)
        job = task_backends["default"].app.sync.jobs.enqueue("other", "not.of.django", {"a": 1})
        with self.assertRaisesRegex(TaskResultDoesNotExist, "not of a Django task"):
            default_task_backend.get_result(job.id)
        job = task_backends["default"].app.sync.jobs.enqueue("other", "gone.tasks.it", {"args": [], "kwargs": {}})
        with self.assertRaisesRegex(ImportError, "Task gone.tasks.it cannot be imported here"):
            default_task_backend.get_result(job.id)

    def test_a_result_of_another_task_does_not_match(self):
        result = tasks.add.enqueue(1)
        with self.assertRaises(TaskResultMismatch):
            tasks.greet.get_result(result.id)

    def test_without_time_zones_instants_are_naive(self):
        with override_settings(USE_TZ=False):
            at = timezone.now() + timedelta(seconds=0.1)
            result = finished(tasks.add.using(run_after=at).enqueue(1))
            self.assertTrue(timezone.is_naive(result.started_at))
            self.assertEqual(result.task.run_after, at)
            self.assertGreaterEqual(result.started_at + timedelta(milliseconds=1), at)


def at_module_level():
    pass


class Validation(unittest.TestCase):
    def test_functions_that_no_worker_can_import_are_refused(self):
        def nested():
            pass

        main = partial(at_module_level).func
        for wrong in (nested, lambda: None, len, Features):
            with self.assertRaises(InvalidTask):
                task(wrong)
        main.__module__ = "__main__"
        with self.assertRaisesRegex(InvalidTask, "cannot be imported by a worker. Move it to a module"):
            task(main)

    def test_wrong_values_are_refused_where_they_are_written(self):
        for changes in (
            {"queue_name": "nowhere"},
            {"priority": 101},
            {"priority": -101},
            {"priority": 1.5},
            {"run_after": datetime(2030, 1, 1)},
            {"run_after": "tomorrow"},
        ):
            with self.subTest(changes), self.assertRaises(InvalidTask):
                tasks.add.using(**changes)
        with self.assertRaisesRegex(InvalidTask, "queue_name has letters and digits only"):
            tasks.add.using(backend="on_commit", queue_name="not a name")

    def test_a_task_that_takes_context_needs_the_argument(self):
        with self.assertRaisesRegex(InvalidTask, "context"):
            task(takes_context=True)(tasks.undecorated)

    def test_what_only_the_server_knows_to_be_wrong_is_an_invalid_task_too(self):
        with self.assertRaises(InvalidTask):
            tasks.add.using(run_after=timezone.now() + timedelta(days=4_000)).enqueue(1)

    def test_wrong_options_of_a_task_are_refused_where_they_are_written(self):
        with self.assertRaisesRegex(TypeError, "There is no option 'retries'"):
            options(retries=3)
        with self.assertRaisesRegex(TypeError, r"@task\(queue_name=…\) says that"):
            options(queue="mail")
        with self.assertRaisesRegex(TypeError, "@options stands below @task"):
            options(retry=Retry(3))(tasks.add)


class Transactions(unittest.TestCase):
    def setUp(self):
        Order.objects.all().delete()

    def test_on_commit_as_the_documentation_has_it(self):
        with transaction.atomic():
            Order.objects.create(number=1)
            transaction.on_commit(partial(tasks.confirm.enqueue, number=1))
        until(lambda: Order.objects.filter(number=1, confirmed=True).exists())

    def test_a_backend_can_enqueue_on_commit_by_itself(self):
        confirm = tasks.confirm.using(backend="on_commit")
        with transaction.atomic():
            Order.objects.create(number=2)
            result = confirm.enqueue(number=2)
            self.assertIsNone(result.enqueued_at)
            self.assertEqual(result.status, TaskResultStatus.READY)
            with self.assertRaises(TaskResultDoesNotExist):
                confirm.get_result(result.id)
        self.assertIsNotNone(result.enqueued_at)
        self.assertTrue(finished(result).is_finished)
        self.assertTrue(Order.objects.get(number=2).confirmed)

    def test_nothing_is_enqueued_after_a_rollback(self):
        confirm = tasks.confirm.using(backend="on_commit")
        with self.assertRaises(ZeroDivisionError), transaction.atomic():
            result = confirm.enqueue(number=3)
            1 / 0
        with self.assertRaises(TaskResultDoesNotExist):
            confirm.get_result(result.id)

    def test_outside_of_a_transaction_it_is_enqueued_at_once(self):
        result = tasks.add.using(backend="on_commit").enqueue(1)
        self.assertIsNotNone(result.enqueued_at)
        self.assertEqual(finished(result).return_value, 1)
        again = asyncio.run(tasks.add.using(backend="on_commit").aenqueue(2))
        self.assertEqual(finished(again).return_value, 2)

    def test_a_task_begins_and_ends_without_an_open_connection(self):
        Order.objects.create(number=4)
        seen = [finished(tasks.confirm.enqueue(4)).return_value for _ in range(8)]
        self.assertLess(len({one["thread"] for one in seen}), 8, "some run in the same thread")
        self.assertEqual([(one["was_open"], one["is_open"]) for one in seen], [(False, True)] * 8)
        self.assertTrue(Order.objects.get(number=4).confirmed)

    @unittest.skipUnless(Path("/proc/self/fd").exists(), "no /proc here: open connections were NOT counted")
    def test_an_idle_worker_holds_no_connection(self):
        Order.objects.create(number=6)
        for one in [tasks.confirm.enqueue(6), tasks.aconfirm.enqueue(6)]:
            finished(one)
        until(lambda: os.environ["SHOP_DATABASE"] not in files_of(worker.process.pid))

    def test_async_tasks_use_the_orm(self):
        Order.objects.create(number=5)
        sent = [tasks.aconfirm.enqueue(5) for _ in range(4)]
        self.assertTrue(all(finished(one).return_value for one in sent))
        connection.close()


class Settings(unittest.TestCase):
    def wrong(self, said, options_given=None, **params):
        backend = PenstockBackend("x", {"OPTIONS": options_given or {}, **params})
        found = [message.msg for message in backend.check()]
        self.assertEqual(len(found), 1)
        self.assertIn(said, found[0])
        with self.assertRaisesRegex(InvalidTaskBackend, "x"):
            backend.enqueue(tasks.add, (1,), {})

    def test_wrong_settings_are_found_by_the_checks_and_at_the_first_use(self):
        url = {"url": "http://127.0.0.1:9"}
        self.wrong("there is no option 'ur'", {"ur": "http://queue"})
        self.wrong("OPTIONS of TASKS['x']", {"url": "redis://queue"})
        self.wrong("url is a text", {"url": 17})
        self.wrong("timeout is a number", {**url, "timeout": "soon"})
        self.wrong("enqueue_on_commit is True, False", {**url, "enqueue_on_commit": 1})
        self.wrong("exclude each other", {**url, "enqueue_on_commit": True, "transaction": True})
        self.wrong("transaction needs PostgreSQL", {**url, "transaction": True})
        self.wrong("DATABASES has none", {**url, "enqueue_on_commit": "replica"})
        self.wrong("There is no option 'retries'", {**url, "task_options": {"retries": 3}})
        self.wrong("attempts is a whole number", {**url, "task_options": {"retry": {"attempts": 0}}})
        self.wrong("@task(queue_name=…) says that", {**url, "task_options": {"queue": "mail"}})
        self.wrong("task_options is a dict", {**url, "task_options": 3})
        self.wrong("QUEUES of TASKS['x'] is a list", url, QUEUES="default")
        self.wrong("The name of a queue", url, QUEUES=["not a name"])

    def test_no_url_is_wrong_and_a_token_is_never_shown(self):
        before = os.environ.pop("PENSTOCK_URL")
        try:
            self.wrong('"url": "http://queue:9324"', {"token": "a-secret-token"})
            found = [str(message) for message in PenstockBackend("x", {"OPTIONS": {"token": "s3cret", "u": 1}}).check()]
            self.assertNotIn("s3cret", str(found))
        finally:
            os.environ["PENSTOCK_URL"] = before
        self.assertEqual(PenstockBackend("y", {}).settings.connection["url"], before)

    def test_a_server_that_is_away_is_an_error_of_the_call(self):
        backend = PenstockBackend("away", {"OPTIONS": {"url": "http://127.0.0.1:1", "timeout": 0.2}})
        with self.assertRaises(errors.TransportError):
            backend.enqueue(tasks.add, (1,), {})

    def test_a_project_without_the_app_is_warned(self):
        with override_settings(INSTALLED_APPS=["shop"]):
            [message] = PenstockBackend("z", {"OPTIONS": {"url": "http://127.0.0.1:1"}}).check()
        self.assertEqual(message.id, "penstock.W001")


if __name__ == "__main__":
    unittest.main()
