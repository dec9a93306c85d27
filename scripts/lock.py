"""Write requirements.lock and requirements-dev.lock from what pyproject.toml resolves to today."""

import re
import subprocess
import sys
import tempfile
import tomllib
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
HEADER = "# Made by `make lock` from pyproject.toml. Do not edit by hand.\n"


def normalise(name: str) -> str:
    """Spell a distribution's name the one way in which two spellings of it compare equal."""
    return re.sub(r"[-_.]+", "-", name).lower()


def markers(requirements: list[str]) -> dict[str, str]:
    """Return the environment marker of each requirement that has one, so that the pin keeps it."""
    found = {}
    for requirement in requirements:
        specifier, _, marker = requirement.partition(";")
        name = re.match(r"[A-Za-z0-9._-]+", specifier)
        assert name is not None, f"not a requirement: {requirement!r}"
        if marker:
            found[normalise(name.group())] = marker.strip()
    return found


def resolve(requirements: list[str], constraints: Path | None) -> list[str]:
    """Install the requirements into a fresh environment and return every `name==version` it then holds."""
    with tempfile.TemporaryDirectory(prefix="penstock-lock-") as directory:
        venv.create(directory, with_pip=True)
        pip = [str(Path(directory, "bin", "python")), "-m", "pip", "--disable-pip-version-check"]
        limits = ["--constraint", str(constraints)] if constraints else []
        subprocess.run([*pip, "install", "--quiet", *limits, *requirements], check=True)
        frozen = subprocess.run(
            # Python 3.11 environments are born with setuptools, later ones are not; neither is a dependency.
            [*pip, "freeze", "--exclude", "setuptools", "--exclude", "pip"],
            check=True,
            capture_output=True,
            text=True,
        )
    return frozen.stdout.splitlines()


def write_lock(name: str, requirements: list[str], constraints: Path | None = None) -> Path:
    """Write one lock file: a pin a line, in name order, each with the marker its requirement carries."""
    kept = markers(requirements)
    lines = []
    for pin in sorted(resolve(requirements, constraints), key=lambda pin: normalise(pin.partition("==")[0])):
        distribution, separator, _ = pin.partition("==")
        assert separator, f"not a plain pin: {pin!r}"
        marker = kept.get(normalise(distribution))
        lines.append(f"{pin} ; {marker}" if marker else pin)
    path = ROOT / name
    path.write_text(HEADER + "".join(f"{line}\n" for line in lines))
    return path


def main() -> None:
    """Resolve the runtime first, then extras and development tools on top of exactly that runtime."""
    if sys.version_info[:2] != (3, 11):
        # Backports are installed on the oldest Python only: pins made there serve the later ones, not the reverse.
        sys.exit("make lock needs Python 3.11, the oldest that Penstock supports: make lock PYTHON=python3.11")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    runtime = project["project"]["dependencies"]
    extras = [needed for extra in project["project"]["optional-dependencies"].values() for needed in extra]
    development = project["dependency-groups"]["dev"]
    runtime_lock = write_lock("requirements.lock", runtime)
    write_lock("requirements-dev.lock", runtime + extras + development, constraints=runtime_lock)


if __name__ == "__main__":
    main()
