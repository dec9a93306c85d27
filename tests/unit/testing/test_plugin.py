"""The pytest plugin, in runs of pytest of their own: as users have it, registered by the installation."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

pytest_plugins = ["pytester"]
pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

_DOCS = Path(__file__).parents[3] / "docs" / "testing.md"
_BLOCK = re.compile(r"```python\n# (\S+\.py)\n(.*?)```", re.DOTALL)


def run(pytester: pytest.Pytester, *arguments: str, **outcomes: int) -> pytest.RunResult:
    """Run pytest in a process of its own, with every warning an error."""
    strictly = ["-W", "error", "-o", "asyncio_default_fixture_loop_scope=function", "-p", "no:cacheprovider"]
    result = pytester.runpytest_subprocess(*strictly, *arguments, timeout=120)
    result.assert_outcomes(**outcomes)
    return result


def test_the_examples_of_the_documentation_run(pytester: pytest.Pytester) -> None:
    examples = dict(_BLOCK.findall(_DOCS.read_text(encoding="utf-8")))
    assert set(examples) == {"shop.py", "test_tasks.py", "test_shop.py", "conftest.py"}
    pytester.makepyfile(shop=examples["shop.py"], test_tasks=examples["test_tasks.py"])
    run(pytester, "-o", "asyncio_mode=auto", passed=6)

    pytester.path.joinpath("test_tasks.py").unlink()
    pytester.makepyfile(test_shop=examples["test_shop.py"])
    run(pytester, passed=2)

    other = pytester.mkdir("other")
    (other / "conftest.py").write_text(examples["conftest.py"])
    (other / "test_other.py").write_text(
        "def test_one(sqs):\n"
        "    sqs.create_queue(QueueName='orders')\n"
        "def test_the_same_server(sqs, penstock_server):\n"
        "    assert sqs.get_queue_url(QueueName='orders')['QueueUrl'].startswith(penstock_server.url)\n"
    )
    run(pytester, "other", passed=2)


def test_every_test_has_a_server_of_its_own_also_with_asyncio_and_xdist(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("""
        import asyncio, threading, time
        import pytest

        def starts_empty(sqs, clock):
            assert len([thread for thread in threading.enumerate() if thread.name == "penstock-server"]) == 1
            assert abs(clock.now_ms() / 1000 - time.time()) < 60
            assert "QueueUrls" not in sqs.list_queues()
            sqs.create_queue(QueueName="orders")
            clock.advance(seconds=3600)

        @pytest.mark.parametrize("number", range(4))
        def test_plain(sqs, penstock_clock, number):
            starts_empty(sqs, penstock_clock)

        @pytest.mark.asyncio
        @pytest.mark.parametrize("number", range(4))
        async def test_on_a_loop(sqs, penstock_clock, number):
            queue = (await asyncio.to_thread(sqs.create_queue, QueueName="first"))["QueueUrl"]
            poll = asyncio.create_task(asyncio.to_thread(sqs.receive_message, QueueUrl=queue, WaitTimeSeconds=20))
            await asyncio.to_thread(sqs.send_message, QueueUrl=queue, MessageBody="hello")
            assert (await poll)["Messages"][0]["Body"] == "hello"
            sqs.delete_queue(QueueUrl=queue)
            starts_empty(sqs, penstock_clock)

        def test_nothing_is_left():
            assert "penstock-server" not in [thread.name for thread in threading.enumerate()]
    """)
    run(pytester, passed=9)
    run(pytester, "-n", "2", passed=9)


def test_an_app_is_tested_until_the_test_ends(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("""
        import pytest
        from penstock import Penstock, errors

        app = Penstock("http://127.0.0.1:1", timeout=0.1)

        @app.task
        async def double(n: int) -> int:
            return 2 * n

        @pytest.mark.parametrize("number", range(2))
        def test_plain(penstock_tasks, number):
            t = penstock_tasks(app)
            assert t.enqueued() == []
            job = double.enqueue_sync(number)
            t.run_all()
            assert job.result_sync(0) == 2 * number
            double.enqueue_sync(number)

        @pytest.mark.asyncio
        @pytest.mark.parametrize("number", range(2))
        async def test_on_a_loop(penstock_async_tasks, number):
            t = penstock_async_tasks(app)
            assert t.enqueued() == []
            job = await double.enqueue(number)
            await t.run_all()
            assert await job.result(0) == 2 * number
            await double.enqueue(number)

        @pytest.mark.asyncio
        async def test_the_wrong_one(penstock_tasks):
            with pytest.raises(errors.WrongThread):
                penstock_tasks(app)

        def test_the_app_is_given_back():
            with pytest.raises(errors.ConnectionFailed):
                double.enqueue_sync(1)
    """)
    run(pytester, passed=6)


def test_a_run_that_uses_no_fixture_loads_nothing_of_the_server(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("""
        import sys

        def test_little_is_loaded():
            ours = {name for name in sys.modules if name.startswith("penstock")}
            assert ours == {"penstock", "penstock.testing", "penstock.testing.plugin"}
            assert not {"apsw", "boto3", "msgspec", "uvicorn", "uvloop"} & set(sys.modules)
    """)
    # Those of our own development that load more are left out.
    run(pytester, "-p", "no:hypothesispytest", passed=1)


def test_without_boto3_the_client_fails_with_what_to_do_and_the_server_runs(pytester: pytest.Pytester) -> None:
    pytester.makeconftest("import sys; sys.modules['boto3'] = None")
    pytester.makepyfile("""
        import urllib.request

        def test_client(sqs):
            pass

        def test_server(penstock_server):
            with urllib.request.urlopen(penstock_server.url + "/healthz") as answer:
                assert answer.status == 200
    """)
    result = run(pytester, passed=1, errors=1)
    result.stdout.fnmatch_lines(["*boto3, which is not installed: pip install 'penstock?sqs?'*"])


def test_the_fixtures_are_listed_with_what_they_are(pytester: pytest.Pytester) -> None:
    result = pytester.runpytest_subprocess("--fixtures", timeout=120)
    result.stdout.fnmatch_lines(["penstock_server*", "*Serve SQS on a free port of loopback*"])
