"""Finds the user's app by what the command line names: `shop:app`, `shop.tasks:app`, or `shop`."""

from __future__ import annotations

import linecache
import os
import sys
import traceback
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

from penstock.cli.failures import USAGE, Failure

if TYPE_CHECKING:
    from penstock.client.app import Penstock

DEFAULT = "app"


def find_app(target: str, imports: Sequence[str] = (), command: str = "worker") -> Penstock:
    """Import the app that `target` names, and further modules with tasks; raises `Failure`.

    Modules in the current folder are found first, as with `python -m`. `command` is what to try with another target.
    """
    module_name, attribute = split(target)
    here = str(Path.cwd())
    if sys.path[:1] not in ([here], [""]):
        sys.path.insert(0, here)
    module = _import(module_name)
    app = _attribute(module, attribute, command) if attribute else _only_app(module, command)
    for name in imports:
        _import(name)
    _import_tasks(app)
    return app


def split(target: str) -> tuple[str, str]:
    """Return the module and the attribute that a target names, the latter empty if it is left out."""
    module, colon, attribute = target.partition(":")
    if module.endswith(".py") or os.sep in module:
        meant = module.removesuffix(".py").strip("./").replace(os.sep, ".")
        raise Failure(
            f"APP is a module, not the file {module}.",
            hint=f"{meant}:{attribute or DEFAULT}",
            exit_code=USAGE,
        )
    parts = [*module.split("."), *(attribute.split(".") if colon else ())]
    if not all(part.isidentifier() for part in parts):
        raise Failure(f"APP is MODULE:ATTRIBUTE, such as shop:app, not {target}.", exit_code=USAGE)
    return module, attribute


def _import(name: str) -> ModuleType:
    try:
        return import_module(name)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # noqa: BLE001 - whatever the user's code raises while it is imported
        raise _not_imported(name, error) from None


def _import_tasks(app: Penstock) -> None:
    try:
        app.import_tasks()
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # noqa: BLE001 - as above
        missing = error.name if isinstance(error, ModuleNotFoundError) else None
        raise _not_imported(missing or "what app.include names", error) from None


def _attribute(module: ModuleType, path: str, command: str) -> Penstock:
    from penstock.client.app import Penstock

    found: object = module
    walked = module.__name__
    for part in path.split("."):
        if not hasattr(found, part):
            raise Failure(f"{walked} has no attribute {part}.", hint=_other_app(module, command))
        found = getattr(found, part)
        walked = f"{walked}.{part}"
    if not isinstance(found, Penstock):
        raise Failure(
            f"{module.__name__}:{path} is not a Penstock.",
            why=[f"it is of the type {type(found).__name__}"],
            hint=_other_app(module, command),
        )
    return found


def _only_app(module: ModuleType, command: str) -> Penstock:
    apps = _apps(module)
    if (app := apps.get(DEFAULT)) is not None:
        return app
    if len({id(app) for app in apps.values()}) == 1:
        return next(iter(apps.values()))
    name = module.__name__
    if not apps:
        raise Failure(
            f"{name} has no Penstock.",
            why=[f"neither {name}:{DEFAULT} nor another of its attributes is one"],
            hint=f'app = Penstock("http://127.0.0.1:9324") in {_place(module.__file__ or name)}',
        )
    raise Failure(
        f"{name} has several Penstocks: {', '.join(sorted(apps))}.",
        hint=_other_app(module, command),
        exit_code=USAGE,
    )


def _apps(module: ModuleType) -> dict[str, Penstock]:
    from penstock.client.app import Penstock

    return {name: value for name, value in vars(module).items() if isinstance(value, Penstock)}


def _other_app(module: ModuleType, command: str) -> str:
    """Return what to try with an app that is there, if one is."""
    apps = _apps(module)
    return f"penstock {command} {module.__name__}:{min(apps)}" if apps else ""


# -- imports that fail ----------------------------------------------------------------------------


def _not_imported(name: str, error: BaseException) -> Failure:
    """Say which module cannot be imported: the one that failed, which another may have imported."""
    from penstock.domain.errors import PenstockError

    said = str(error) if isinstance(error, PenstockError) else "".join(traceback.format_exception_only(error)[-1:])
    why = [said.strip()]
    if isinstance(error, SyntaxError):
        why = [f"{type(error).__name__}: {error.msg}"]
        if error.filename and error.lineno:
            why.append(f"{_place(error.filename)}, line {error.lineno}: {(error.text or '').strip()}")
        return Failure(f"Cannot import {_module_at(error.filename or '') or name}.", why=why)
    missing = error.name if isinstance(error, ModuleNotFoundError) else None
    frame = _own_frame(error)
    if frame is None:
        if missing is not None:
            return Failure(
                f"Cannot import {name}.",
                why=[said.strip(), f"searched from {Path.cwd()}"],
                hint="run this in the folder of your project, in your project's environment",
            )
        return Failure(f"Cannot import {name}.", why=why)
    module, place, line, code = frame
    why.append(f"{place}, line {line}: {code}")
    if missing is not None and not _is_local(missing):
        package = missing.partition(".")[0]
        hint = f"uv add {package}, or start the worker in your project's environment"
    else:
        hint = f'python -c "import {module}" shows all of it'
    return Failure(f"Cannot import {module}.", why=why, hint=hint)


def _own_frame(error: BaseException) -> tuple[str, str, int, str] | None:
    """Return the module, file, line and code of the innermost import that failed: in the project, or else anywhere."""
    own = foreign = None
    for frame, line in traceback.walk_tb(error.__traceback__):
        code = frame.f_code
        if code.co_name != "<module>":
            continue
        place = _place(code.co_filename)
        text = linecache.getline(code.co_filename, line).strip()
        found = (str(frame.f_globals.get("__name__")), place, line, text)
        if Path(place).is_absolute() or "site-packages" in place:
            foreign = found
        else:
            own = found
    return own or foreign


def _module_at(file: str) -> str:
    """Return the name of the module in a file below the current folder."""
    place = Path(_place(file))
    if place.is_absolute() or place.suffix != ".py":
        return ""
    parts = place.with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _is_local(module: str) -> bool:
    """Return whether a missing module is one of the project's own: its package is there."""
    package = Path.cwd() / module.partition(".")[0]
    return package.is_dir() or package.with_suffix(".py").is_file()


def _place(file: str) -> str:
    """Return a path as people know it: below the current folder, if it is there."""
    try:
        return str(Path(file).resolve().relative_to(Path.cwd()))
    except ValueError:
        return file
