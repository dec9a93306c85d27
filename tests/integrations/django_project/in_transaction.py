"""Enqueues in transactions of the database that also keeps the jobs. Run with SHOP_POSTGRES set."""

import asyncio
import os
import unittest

import django

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "project.settings")
django.setup()

from asgiref.sync import sync_to_async
from django.core.management import call_command
from django.db import connection, transaction
from shop import tasks
from shop.models import Order

from penstock.django.framework import TaskResultDoesNotExist, task_enqueued


class InTransaction(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        call_command("migrate", run_syncdb=True, verbosity=0)

    @classmethod
    def tearDownClass(cls):
        connection.close()

    def test_the_task_is_there_if_and_only_if_the_transaction_commits(self):
        announced = []

        def receive(sender, task_result, **kwargs):
            announced.append(task_result.id)

        task_enqueued.connect(receive)
        with transaction.atomic():
            Order.objects.create(number=1)
            kept = tasks.confirm.enqueue(1)
            with self.assertRaises(ZeroDivisionError), transaction.atomic():
                inner = tasks.confirm.enqueue(2)
                1 / 0
            self.assertEqual((announced, kept.enqueued_at), ([], None))
        with self.assertRaises(ZeroDivisionError), transaction.atomic():
            lost = tasks.confirm.enqueue(3)
            1 / 0
        self.assertEqual(announced, [kept.id])
        self.assertIsNotNone(kept.enqueued_at)
        self.assertEqual(tasks.confirm.get_result(kept.id).args, [1])
        for gone in (inner, lost):
            with self.assertRaises(TaskResultDoesNotExist):
                tasks.confirm.get_result(gone.id)

    def test_a_transaction_that_django_does_not_manage_is_refused(self):
        transaction.set_autocommit(False)
        try:
            with self.assertRaisesRegex(transaction.TransactionManagementError, "atomic"):
                tasks.confirm.enqueue(4)
        finally:
            transaction.rollback()
            transaction.set_autocommit(True)

    def test_outside_of_a_transaction_it_is_enqueued_at_once(self):
        self.assertEqual(tasks.add.get_result(tasks.add.enqueue(1).id).args, [1])

        async def go():
            result = await tasks.add.aenqueue(2)
            await sync_to_async(lambda: connection.close())()  # noqa: PLW0108 - that of the thread
            return result

        self.assertIsNotNone(asyncio.run(go()).enqueued_at)


if __name__ == "__main__":
    unittest.main()
