"""The Django app of `INSTALLED_APPS`: it brings `manage.py penstock_worker`."""

from __future__ import annotations

from django.apps import AppConfig


class PenstockConfig(AppConfig):
    """Has no models."""

    name = "penstock.django"
    label = "penstock"
    verbose_name = "Penstock"
