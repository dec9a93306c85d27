"""Writes the pictures of the lab's guides, `docs/lab/pictures/NAME.svg`, each from a run of its scenario.

Run `python scripts/make_lab_pictures.py` after a change to a scenario or to how it is drawn; names of scenarios make
only theirs. `--check` writes nothing and says which pictures are out of date.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.lab.knobs import turned
from penstock.lab.laboratory import Laboratory, LabSettings
from penstock.lab.report.standalone import picture_svg
from penstock.lab.scenarios import NAMES, scenario

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

PICTURES = Path(__file__).resolve().parent.parent / "docs" / "lab" / "pictures"


def made_pictures(names: Sequence[str]) -> Iterator[tuple[Path, str]]:
    """Return the file of each picture, and what it has to hold. The same seed draws the same picture."""
    with Laboratory(LabSettings()) as laboratory:
        for name in names:
            played = scenario(name)
            run = laboratory.run(played, turned(played.knobs, {}, {}))
            if run.outcome == "fails":
                raise SystemExit(f"{name} fails, so there is nothing to draw: penstock lab run {name}")
            yield PICTURES / f"{name}.svg", picture_svg(run)


def main(arguments: Sequence[str]) -> int:
    """Write the pictures, or say which are out of date."""
    names = [argument for argument in arguments if argument != "--check"] or list(NAMES)
    old = []
    for path, picture in made_pictures(names):
        if path.is_file() and path.read_text(encoding="utf-8") == picture:
            continue
        old.append(path.name)
        if "--check" not in arguments:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(picture, encoding="utf-8")
            sys.stdout.write(f"{path.name}\n")
    if "--check" in arguments and old:
        sys.stderr.write(f"out of date: {', '.join(old)}; run python scripts/make_lab_pictures.py\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
