"""The settings of a project that uses Penstock. What differs between runs comes from the environment."""

import json
import os

import django

SECRET_KEY = "not a secret"
USE_TZ = True
TIME_ZONE = "Europe/Berlin"
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
INSTALLED_APPS = ["penstock.django", "shop"]
if django.VERSION < (6,):
    INSTALLED_APPS += ["django_tasks"]
DATABASES = {
    "default": {
        "ENGINE": "django.db.backends.sqlite3",
        "NAME": os.environ.get("SHOP_DATABASE", "shop.sqlite3"),
        "OPTIONS": {"timeout": 20},
    }
}
if "SHOP_POSTGRES" in os.environ:
    DATABASES["default"] = {"ENGINE": "django.db.backends.postgresql", **json.loads(os.environ["SHOP_POSTGRES"])}
PENSTOCK = "penstock.django.PenstockBackend"
URL = {"url": os.environ["PENSTOCK_URL"]} if "PENSTOCK_URL" in os.environ else {}
TASKS = {
    "default": {"BACKEND": PENSTOCK, "QUEUES": ["default", "mail", "ordered"], "OPTIONS": {**URL, "timeout": 20}},
    "on_commit": {"BACKEND": PENSTOCK, "QUEUES": [], "OPTIONS": {**URL, "enqueue_on_commit": True}},
    "retried": {
        "BACKEND": PENSTOCK,
        "OPTIONS": {**URL, "task_options": {"retry": {"attempts": 2, "backoff": 0.01}, "retention": "1h"}},
    },
}
if "SHOP_POSTGRES" in os.environ:
    TASKS["default"]["OPTIONS"]["transaction"] = True
