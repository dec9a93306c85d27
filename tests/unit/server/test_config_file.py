"""The configuration file, and how it is told what is wrong with it."""

from __future__ import annotations

import hashlib
import inspect
import re
from pathlib import Path

import msgspec
import pytest

from penstock.cli.serve import serve
from penstock.domain.policy import Asked, Decision
from penstock.server.config import ServerConfig, StartFailure
from penstock.server.config_file import ConfigFile
from penstock.server.jobs.access import Caller, Scope

KEY = """
[[keys]]
access_key_id = "AKIAEXAMPLE"
secret_access_key = "a very secret secret"
account = "111122223333"
"""
TOKEN = """
[[tokens]]
name = "app"
token = "a-very-secret-secret"
scopes = ["read"]
"""
POLICY = '{"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Action": "sqs:*", "Resource": "*"}]}'


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "penstock.toml"


def read(path: Path, text: str) -> ConfigFile:
    path.write_text(text)
    return ConfigFile(str(path))


def test_flags_settings_and_the_file_have_one_definition() -> None:
    flags = {name: parameter.default for name, parameter in inspect.signature(serve).parameters.items()}
    assert flags.pop("config") is None
    settings = {field.encode_name: field.default for field in msgspec.structs.fields(ServerConfig)}
    assert (settings.pop("keys"), settings.pop("tokens"), settings.pop("queues")) == ((), (), ())
    assert flags == settings


def test_a_file_holds_settings_keys_and_queues(path: Path) -> None:
    file = read(
        path,
        f"""
        host = "0.0.0.0"
        port = 9325
        purge_interval = 0
        {KEY}
        user = "ann"
        policy = '''{POLICY}'''

        [[queues]]
        name = "orders.fifo"
        attributes = {{ VisibilityTimeout = 60, ContentBasedDeduplication = true, KmsMasterKeyId = "k" }}
        tags = {{ team = "tea" }}
        redrive = {{ dead_letter_queue = "dead.fifo", max_receive_count = 5 }}

        [[queues]]
        name = "dead.fifo"
        account = "444455556666"
        region = "eu-west-1"
        """,
    )
    assert file.settings == {"host": "0.0.0.0", "port": 9_325, "purge_interval": 0}
    [key] = file.keys
    assert (key.id, key.secret, key.account, key.user) == (
        "AKIAEXAMPLE",
        "a very secret secret",
        "111122223333",
        "ann",
    )
    orders, dead = file.queues("us-east-1", "000000000000")
    assert orders.attributes == {"VisibilityTimeout": "60", "ContentBasedDeduplication": "true", "KmsMasterKeyId": "k"}
    assert (orders.region, orders.account, orders.dead_letter_queue, orders.max_receive_count) == (
        "us-east-1",
        "000000000000",
        "dead.fifo",
        5,
    )
    assert (dead.region, dead.account, dead.dead_letter_queue) == ("eu-west-1", "444455556666", None)


def test_a_file_holds_tokens_of_which_only_digests_are_kept(path: Path) -> None:
    text = """
        [[tokens]]
        name = "app"
        token = "spelt-out-in-the-file="
        scopes = ["enqueue", "read"]
        tenant = "acme"
        queues = ["orders.*"]

        [[tokens]]
        name = "workers"
        token_sha256 = "2C26B46B68FFC68FF99B453C1D30413413422D706483BFA0F98A5E886266E7AE"
        scopes = ["work"]
        """
    app, workers = read(path, text).tokens
    assert app.digest == hashlib.sha256(b"spelt-out-in-the-file=").digest()
    assert app.caller == Caller(
        name="app", scopes=frozenset({Scope.ENQUEUE, Scope.READ}), tenant="acme", queues=("orders.*",)
    )
    assert workers.digest == hashlib.sha256(b"foo").digest()
    assert workers.caller == Caller(name="workers", scopes=frozenset({Scope.WORK}))
    assert "spelt-out" not in f"{app!r} {app.__rich_repr__()}"


def test_a_policy_may_be_a_table_or_stand_in_a_file_beside(path: Path) -> None:
    (path.parent / "worker.json").write_text(POLICY)
    table = """
    [keys.policy]
    Version = "2012-10-17"
    [[keys.policy.Statement]]
    Effect = "Allow"
    Action = ["sqs:SendMessage"]
    Resource = "*"
    """
    for text in (f'{KEY}\npolicy_file = "worker.json"', f"{KEY}\n{table}"):
        [key] = read(path, text).keys
        asked = Asked(key.principal, "sqs:SendMessage", "arn:aws:sqs:us-east-1:1:orders")
        assert key.policy.decide(asked) is Decision.ALLOWED
        assert key.user == "AKIAEXAMPLE"


WRONG = [
    ('host = "a"\nprot = 1', "line 2: unknown setting prot."),
    ('\nport = "a"', "line 2: port is not as it should be. Expected `int`, got `str`."),
    ('log_level = "loud"', "line 1: log_level is not as it should be. Invalid enum value 'loud'"),
    ("port = \nhost = 1", "is not TOML: Invalid value (at line 1"),
    ("[server]\nport = 1", "line 1: unknown setting server."),
    (KEY + f"policy = '''{POLICY}'''\n" + KEY + "sercet = 1", "line 12: unknown setting keys.1.sercet."),
    (KEY.replace("account", "accounts"), "line 5: unknown setting keys.0.accounts."),
    ('[[keys]]\naccess_key_id = "a"', "keys.0.secret_access_key is missing."),
    (KEY, "the key AKIAEXAMPLE has neither a policy nor a policy_file"),
    (KEY + 'policy = "{}"\npolicy_file = "x"', "or both"),
    (KEY + 'policy_file = "absent.json"', "absent.json cannot be read"),
    (KEY + "policy = '{}'", "cannot be enforced. A policy has a Statement."),
    (
        KEY + """policy = '{"Statement":{"Effect":"Allow","Action":"sqs:*","Resource":"orders"}}'""",
        "'orders' is neither * nor of the form",
    ),
    ('[[queues]]\nname = "a"\n[queues.redrive]\nqueue = "b"', "line 4: unknown setting queues.0.redrive.queue."),
    ('[[queues]]\nname = "a"\nattributes = { DelaySeconds = [1] }', "queues.0.attributes"),
    ('queues = "orders"', "queues is not as it should be"),
    (TOKEN.replace("scopes", "scope"), "line 5: unknown setting tokens.0.scope."),
    (TOKEN.replace('"read"', '"write"'), "tokens.0.scopes"),
    (TOKEN + 'tenat = "acme"', "line 6: unknown setting tokens.0.tenat."),
    ('[[tokens]]\nname = "app"\nscopes = ["read"]', "line 2: the token app has neither a token nor a token_sha256"),
    (TOKEN + f'token_sha256 = "{"0" * 64}"', "or both"),
    (TOKEN.replace("a-very", "a very"), "line 3: the token app is not 16 or more letters"),
    (TOKEN.replace("a-very-secret-secret", "short"), "line 3: the token app is not 16 or more letters"),
    (TOKEN.replace('token = "a-very', 'token_sha256 = "a-very'), "a token_sha256 that is not 64 hexadecimal digits"),
]


@pytest.mark.parametrize(("text", "told"), WRONG, ids=lambda value: value[-40:])
def test_what_is_wrong_is_told_with_its_place_and_without_secrets(path: Path, text: str, told: str) -> None:
    with pytest.raises(StartFailure) as failure:
        read(path, text)
    assert str(failure.value).startswith(str(path.parent))
    assert told in str(failure.value)
    assert "secret secret" not in str(failure.value)
    assert "secret-secret" not in str(failure.value)


@pytest.mark.parametrize(("data", "told"), [(b"\xff", "not UTF-8"), (b"#" * 5_000_000, "larger than")])
def test_a_file_that_is_no_text_or_too_much_of_it_is_refused(path: Path, data: bytes, told: str) -> None:
    path.write_bytes(data)
    with pytest.raises(StartFailure, match=told):
        ConfigFile(str(path))


def test_a_file_that_is_not_there_is_named(path: Path) -> None:
    with pytest.raises(StartFailure, match=r"penstock\.toml cannot be read: No such file"):
        ConfigFile(str(path))
    with pytest.raises(StartFailure, match="cannot be read: Is a directory"):
        ConfigFile(str(path.parent))


def test_the_example_in_the_documentation_is_in_order(path: Path) -> None:
    text = (Path(__file__).parents[3] / "docs" / "configuration.md").read_text()
    [example] = re.findall(r"```toml\n(.*?)```", text, re.DOTALL)
    [policy] = re.findall(r"```json\n(.*?)```", text, re.DOTALL)
    (path.parent / "worker.json").write_text(policy)
    file = read(path, example)
    assert [key.user for key in file.keys] == ["admin", "worker", "AKIAPARTNER"]
    assert [token.caller.name for token in file.tokens] == ["shop", "workers", "operations"]
    assert len(file.queues("eu-west-1", "111122223333")) == 3
    told = {field.encode_name for field in msgspec.structs.fields(ServerConfig)} - {"keys", "tokens", "queues"}
    assert told - file.settings.keys() == {"clock", "insecure", "socket"}
