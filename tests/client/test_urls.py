"""How a client is opened: by URL, by the environment, and what is said of a URL that means nothing."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from penstock import Penstock, errors


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("", "empty"),
        ("jobs.db", "no scheme"),
        ("ftp://host", "is not a URL"),
        ("memory:jobs", "is not a URL"),
        ("postgresql:host/db", "is not a URL"),
        ("sqlite:", "does not name a file"),
        ("sqlite://host/jobs.db", "does not name a file"),
        ("sqlite:folder/", "does not name a file"),
        ("http://", "a host and a port"),
        ("http://host:port", "wrong"),
        ("http://host/path", "nothing more"),
        ("http://host?a=b", "nothing more"),
        ("unix:relative.sock", "whole path"),
        ("http://a:1,sqlite:jobs.db", "is no address of a server"),
        ("http://user:secret@host", "give a token instead"),
    ],
)
def test_a_bad_url_is_refused_with_what_is_wrong(url: str, said: str) -> None:
    with pytest.raises(errors.UrlInvalid, match=said) as refused:
        Penstock(url)
    assert isinstance(refused.value, ValueError)
    assert "secret" not in str(refused.value)


def test_a_file_may_be_in_the_home_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    with pytest.raises(errors.OwnerNotFound, match=f"owns {tmp_path}/jobs.db"):
        Penstock("sqlite:~/jobs.db", start=False).sync.queues.list()


def test_a_file_that_cannot_be_one_is_told(tmp_path: Path) -> None:
    with pytest.raises(errors.UrlInvalid, match="names a folder"):
        Penstock(f"sqlite:{tmp_path}").sync.queues.list()
    with pytest.raises(errors.UrlInvalid, match="cannot be made"):
        Penstock("sqlite:/proc/nowhere/jobs.db").sync.queues.list()


def test_an_owner_is_a_process_or_a_thread() -> None:
    with pytest.raises(ValueError, match="proces"):
        Penstock("sqlite:jobs.db", owner="proces")  # type: ignore[arg-type]


def test_passwords_are_not_shown() -> None:
    app = Penstock("postgresql://user:secret@host:5432/db?password=secret")
    assert repr(app) == "Penstock('postgresql://user@host:5432/db')"
    with pytest.raises(errors.UrlInvalid) as refused:
        Penstock("mysql://user:secret@host/db")
    assert "secret" not in str(refused.value)


def test_the_environment_names_url_and_token(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("PENSTOCK_URL", raising=False)
    with pytest.raises(errors.UrlInvalid, match="PENSTOCK_URL is not set"):
        Penstock.from_env()
    monkeypatch.setenv("PENSTOCK_URL", "http://a:1,http://b:2")
    monkeypatch.setenv("PENSTOCK_TOKEN_FILE", str(tmp_path / "token"))
    assert repr(Penstock.from_env()) == "Penstock('http://a:1,http://b:2')"
    monkeypatch.setenv("PENSTOCK_TOKEN", "token")
    with pytest.raises(errors.ClientError, match="not both"):
        Penstock.from_env()


HEAVY = ["penstock.server", "penstock.engine", "penstock.store", "uvicorn", "asyncpg", "boto3", "fastapi", "apsw"]


@pytest.mark.parametrize("url", ["http://a", "https://a", "unix:/a", "memory:", "postgresql://a/b"])
def test_a_client_is_light_until_it_is_used(url: str) -> None:
    program = f"""
import sys
from penstock import Penstock, errors
app = Penstock({url!r})
app.sync
print([name for name in {HEAVY!r} if name in sys.modules])
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_the_package_alone_loads_no_client() -> None:
    program = "import sys, penstock; print('penstock.client' in sys.modules, hasattr(penstock, 'nothing'))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "False False\n"


def test_everything_that_is_exported_is_there() -> None:
    import penstock  # noqa: PLC0415

    assert [name for name in penstock.__all__ if getattr(penstock, name, None) is None] == []
