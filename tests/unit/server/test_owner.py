"""When a server that owns a file ends, and who may connect to its socket."""

from __future__ import annotations

import asyncio
import errno
import os
import socket
from pathlib import Path

import pytest

from penstock.server.config import ServerConfig, StartFailure
from penstock.server.owner import OwnerRole
from penstock.server.unix_sockets import ADDRESS_BYTES_MAX, Peers, UnixListener, short_address
from penstock.store.ownership.owner import Owner


@pytest.fixture
def role(tmp_path: Path) -> OwnerRole:
    path = str(tmp_path / "jobs.db")
    owner = Owner.take(path)
    role = OwnerRole(owner, path + ".sock", on_demand=True, idle_s=0.05)
    owner.claim()
    return role


async def watch(role: OwnerRole, connections: int) -> bool:
    """Return whether the role ends by itself."""
    stopped = asyncio.Event()
    watching = asyncio.create_task(role.watch(lambda: connections, stopped.set))
    done, _ = await asyncio.wait([watching], timeout=1 if connections == 0 else 0.3)
    watching.cancel()
    return bool(done) and stopped.is_set()


async def test_an_owner_ends_without_connections_and_not_with_one(role: OwnerRole) -> None:
    assert not await watch(role, connections=1)
    assert await watch(role, connections=0)
    assert role.failure is None
    role.owner.release()


async def test_an_owner_ends_with_an_error_when_its_log_cannot_be_written(role: OwnerRole) -> None:
    role.owner.store_failure = lambda: OSError(errno.EIO, "Input/output error")
    assert await watch(role, connections=1)
    assert "Input/output error" in str(role.failure)
    role.owner.release()


def test_a_listener_appears_all_at_once_and_goes_only_if_it_is_still_its_own(tmp_path: Path) -> None:
    place = tmp_path / "a.sock"
    with UnixListener(str(place), mode=0o600) as first:
        assert not place.exists()
        first.socket.listen()
        first.publish()
        with UnixListener(str(place), mode=0o600) as second:
            second.socket.listen()
            second.publish()
            first.retract()
            assert place.exists()
        assert not place.exists()


def test_a_long_path_has_a_short_address(tmp_path: Path) -> None:
    folder = tmp_path / ("f" * 150)
    folder.mkdir()
    for name in ("a.sock", "n" * 200):
        place = folder / name
        with short_address(str(place)) as address:
            assert len(address) <= ADDRESS_BYTES_MAX
            with socket.socket(socket.AF_UNIX) as listener, socket.socket(socket.AF_UNIX) as client:
                if name == "a.sock":
                    listener.bind(address)
                    listener.listen()
                    client.connect(address)
                    assert place.is_socket()


@pytest.mark.parametrize(
    ("mode", "group", "allowed"),
    [(0o600, False, False), (0o660, True, True), (0o660, False, False), (0o640, True, False), (0o666, False, True)],
)
def test_peers_are_judged_by_the_mode_of_the_file(
    tmp_path: Path, mode: int, group: bool, allowed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "jobs.db"
    file.touch()
    file.chmod(mode)
    stranger, groups = 54_321, {file.stat().st_gid} if group else {54_321}
    monkeypatch.setattr("penstock.server.unix_sockets.peer_of", lambda _: (stranger, frozenset(groups)))
    ours, theirs = socket.socketpair()
    with ours, theirs:
        assert Peers(str(file)).allow(ours) is allowed
        assert not Peers(None).allow(ours)


def test_the_user_itself_may_always_connect() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        assert Peers(None).allow(ours)
        assert os.geteuid() >= 0


@pytest.mark.parametrize("settings", [{"workers": 2, "store": "postgresql://host/db"}])
def test_a_socket_is_for_one_process(settings: dict[str, object]) -> None:
    with pytest.raises(StartFailure, match="one process"):
        ServerConfig(socket="/tmp/a.sock", **settings).check()  # type: ignore[arg-type]


def test_a_socket_needs_no_credentials_whatever_the_host() -> None:
    ServerConfig(socket="/tmp/a.sock", host="0.0.0.0").check()
