"""The configuration file: settings, keys, tokens and queues in TOML, read strictly, with the line of what is wrong."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import msgspec

from penstock.domain.errors import PolicyInvalid
from penstock.domain.policy import parse_user_policy
from penstock.server.access import AccessKey
from penstock.server.config import DeclaredQueue, ServerConfig, StartFailure
from penstock.server.jobs.access import ApiToken, Caller, Scope, digest_of

FILE_BYTES_MAX = 4 * 1024 * 1024
KEYS_MAX = 10_000
TOKENS_MAX = 10_000
QUEUES_MAX = 10_000
TOKEN_CHARACTERS_MIN = 16
_LISTS = frozenset({"keys", "tokens", "queues"})
_TOKEN = re.compile(r"[A-Za-z0-9._~+/-]+=*")
_SHA256 = re.compile(r"[0-9a-fA-F]{64}")
_ABOUT_FIELD = re.compile(r"(?P<fault>unknown|missing)(?: required)? field `(?P<field>[^`]*)`")
_AT = re.compile(r" - at `\$(?P<path>[^`]*)`$")
_SETTING = re.compile(r"\s*(?P<name>[A-Za-z0-9_-]+)\s*=\s*(?P<value>.*?)\s*")
_PLAIN_VALUE = re.compile(r"[0-9_.+-]+|true|false")
"""What no secret looks like."""
_SHOWN = frozenset({"host", "port", "region", "account", "workers", "log_level", "log_format", "clock", "insecure"})
"""Settings whose lines may be shown next to one that is wrong."""
_STEP = re.compile(r"\.?([A-Za-z0-9_-]+)|\[(\d+|\.\.\.)\]")


class _Key(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One of `[[keys]]`. Its policy is JSON text or a table, or stands in a file beside this one."""

    access_key_id: str
    secret_access_key: str
    account: str
    user: str | None = None
    policy: str | dict[str, Any] | None = None
    policy_file: str | None = None


class _Token(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One of `[[tokens]]`: the token itself or its digest, and what it is good for."""

    name: str
    scopes: list[Scope]
    token: str | None = None
    token_sha256: str | None = None
    tenant: str | None = None
    queues: list[str] | None = None


class _Redrive(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where the dead letters of a queue go."""

    dead_letter_queue: str
    max_receive_count: int


class _Queue(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One of `[[queues]]`."""

    name: str
    account: str | None = None
    region: str | None = None
    attributes: dict[str, str | int | bool] = {}
    tags: dict[str, str] = {}
    redrive: _Redrive | None = None


class _Lists(msgspec.Struct, frozen=True, kw_only=True):
    """What a file holds besides settings."""

    keys: list[_Key] = []
    tokens: list[_Token] = []
    queues: list[_Queue] = []


class UnknownSetting(StartFailure):
    """A name in the file that means nothing there; `known` are those that do, and `excerpt` is the place.

    The excerpt holds lines by their numbers, the one in question last, without values that may be secret.
    """

    def __init__(self, place: str, name: str, *, known: tuple[str, ...], excerpt: tuple[tuple[int, str], ...]) -> None:
        super().__init__(f"{place}: unknown setting {name}.")
        self.name = name.rpartition(".")[2]
        self.known = known
        self.excerpt = excerpt


class ConfigFile:
    """A file that was read and found in order: `settings` by name, and what becomes of keys, tokens and queues."""

    def __init__(self, path: str) -> None:
        """Raises `StartFailure` that names the file, and the line or the name of what is wrong with it."""
        self._path = Path(path)
        self._text = _read(self._path)
        try:
            given = tomllib.loads(self._text)
        except tomllib.TOMLDecodeError as error:
            raise StartFailure(f"{path} is not TOML: {error}.") from None
        self.settings = {name: value for name, value in given.items() if name not in _LISTS}
        try:
            msgspec.convert(self.settings, ServerConfig)
            lists = msgspec.convert({name: given[name] for name in given.keys() - self.settings.keys()}, _Lists)
        except msgspec.ValidationError as error:
            raise self._failure(str(error)) from None
        if len(lists.keys) > KEYS_MAX or len(lists.tokens) > TOKENS_MAX or len(lists.queues) > QUEUES_MAX:
            raise StartFailure(
                f"{path} declares more than {KEYS_MAX} keys, {TOKENS_MAX} tokens or {QUEUES_MAX} queues."
            )
        self.keys = tuple(self._key(index, key) for index, key in enumerate(lists.keys))
        self.tokens = tuple(self._token(index, token) for index, token in enumerate(lists.tokens))
        self._queues = lists.queues

    def queues(self, region: str, account: str) -> tuple[DeclaredQueue, ...]:
        """Return the queues, those that name no region or account in these."""
        return tuple(
            DeclaredQueue(
                region=queue.region or region,
                account=queue.account or account,
                name=queue.name,
                attributes={name: _text(value) for name, value in queue.attributes.items()},
                tags=queue.tags,
                dead_letter_queue=None if queue.redrive is None else queue.redrive.dead_letter_queue,
                max_receive_count=0 if queue.redrive is None else queue.redrive.max_receive_count,
            )
            for queue in self._queues
        )

    def _key(self, index: int, given: _Key) -> AccessKey:
        where = f"{self._path}, line {self._line(['keys', str(index)], 'access_key_id')}: the key {given.access_key_id}"
        if (given.policy is None) == (given.policy_file is None):
            raise StartFailure(f"{where} has neither a policy nor a policy_file, or both. Without one it may nothing.")
        document: object = given.policy
        if given.policy_file is not None:
            document = _read(self._path.parent / given.policy_file)
        try:
            policy = parse_user_policy(document)
        except PolicyInvalid as invalid:
            raise StartFailure(f"{where} has a policy that cannot be enforced. {invalid.reason}") from None
        return AccessKey(
            id=given.access_key_id,
            secret=given.secret_access_key,
            account=given.account,
            user=given.user or given.access_key_id,
            policy=policy,
        )

    def _token(self, index: int, given: _Token) -> ApiToken:
        where = f"{self._path}, line {self._line(['tokens', str(index)], 'name')}: the token {given.name}"
        if (given.token is None) == (given.token_sha256 is None):
            raise StartFailure(f"{where} has neither a token nor a token_sha256, or both.")
        if given.token is not None:
            if len(given.token) < TOKEN_CHARACTERS_MIN or not _TOKEN.fullmatch(given.token):
                raise StartFailure(
                    f"{where} is not {TOKEN_CHARACTERS_MIN} or more letters, digits and ._~+/-, with = at its end only."
                )
            digest = digest_of(given.token)
        elif given.token_sha256 is not None and _SHA256.fullmatch(given.token_sha256):
            digest = bytes.fromhex(given.token_sha256)
        else:
            raise StartFailure(f"{where} has a token_sha256 that is not 64 hexadecimal digits.")
        caller = Caller(
            name=given.name,
            scopes=frozenset(given.scopes),
            tenant=given.tenant,
            queues=None if given.queues is None else tuple(given.queues),
        )
        return ApiToken(caller=caller, digest=digest)

    def _failure(self, reason: str) -> StartFailure:
        """Say where msgspec found something wrong. It never quotes a value."""
        at = _AT.search(reason)
        steps = [name or index for name, index in _STEP.findall(at["path"])] if at else []
        about = _ABOUT_FIELD.search(reason)
        field = about["field"] if about else (steps.pop() if steps else "")
        line = self._line(steps, field)
        place = f"{self._path}, line {line}" if line else str(self._path)
        name = ".".join([*steps, field])
        if about and about["fault"] == "unknown":
            return UnknownSetting(place, name, known=_known(steps), excerpt=self._excerpt(line, field))
        if about:
            return StartFailure(f"{place}: {name} is missing.")
        return StartFailure(f"{place}: {name} is not as it should be. {reason[: at.start()] if at else reason}.")

    def _excerpt(self, line: int | None, field: str) -> tuple[tuple[int, str], ...]:
        """Return the line of a field, and the one above it if that is a setting that may be shown."""
        if line is None:
            return ()
        lines = self._text.splitlines()
        above = _SETTING.fullmatch(lines[line - 2]) if line > 1 else None
        public = above is not None and above["name"] in _SHOWN
        asked = _SETTING.fullmatch(lines[line - 1])
        if asked is None or asked["name"] != field:
            return ()
        value = asked["value"] if _PLAIN_VALUE.fullmatch(asked["value"]) else "…"
        return (*(((line - 1, lines[line - 2].strip()),) if public else ()), (line, f"{field} = {value}"))

    def _line(self, steps: list[str], field: str) -> int | None:
        """Find the line of a field: beneath its table's header, or the header itself, or nowhere."""
        lines = self._text.splitlines()
        start = 0
        if len(steps) > 1 and steps[1].isdigit():
            headers = [number for number, line in enumerate(lines) if _header(line) == steps[0]]
            start = headers[int(steps[1])] if int(steps[1]) < len(headers) else 0
        wanted = re.compile(rf"(?:.*[.{{,\[]\s*|\s*)[\"']?{re.escape(field)}[\"']?\s*[=.\]]")
        found = next((number for number in range(start, len(lines)) if wanted.match(lines[number])), None)
        if found is None:
            return start + 1 if start else None
        return found + 1


def _known(steps: list[str]) -> tuple[str, ...]:
    """Return the names that a table knows, by the way to it."""
    tables: dict[str, type[msgspec.Struct]] = {
        "keys": _Key,
        "tokens": _Token,
        "queues": _Redrive if "redrive" in steps else _Queue,
    }
    kind = tables.get(steps[0], ServerConfig) if steps else ServerConfig
    names = tuple(field.encode_name for field in msgspec.structs.fields(kind))
    return names if steps else (*names, *_LISTS)


def _header(line: str) -> str | None:
    """Return the name of the list of tables of which this line begins another."""
    found = re.match(r"\s*\[\[\s*([A-Za-z0-9_-]+)\s*\]\]", line)
    return found[1] if found else None


def _read(path: Path) -> str:
    try:
        with path.open("rb") as file:
            data = file.read(FILE_BYTES_MAX + 1)
        if len(data) > FILE_BYTES_MAX:
            raise StartFailure(f"{path} is larger than {FILE_BYTES_MAX} bytes.")
        return data.decode()
    except OSError as error:
        raise StartFailure(f"{path} cannot be read: {error.strerror}.") from None
    except UnicodeDecodeError:
        raise StartFailure(f"{path} is not UTF-8.") from None


def _text(value: str | bool | int) -> str:  # noqa: FBT001 - as TOML has it
    return str(value).lower() if isinstance(value, bool) else str(value)
