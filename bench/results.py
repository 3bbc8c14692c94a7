"""The processor, and the stored results of each processor: a JSON file for each, and a page of all."""

from __future__ import annotations

import json
import os
import platform
import re
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent / "results"
PAGE = "README.md"
# Virtual machines hide the product name, but show the family and the model. None: all models of the family.
_GENERATIONS = {
    ("AuthenticAMD", 26): {None: "Zen 5"},
    ("AuthenticAMD", 25): {17: "Zen 4", 1: "Zen 3"},
    ("GenuineIntel", 6): {
        207: "Emerald Rapids",
        173: "Granite Rapids",
        143: "Sapphire Rapids",
        106: "Ice Lake",
    },
}  # fmt: skip


def processor() -> str:
    """The model and the generation of the processor, if they are known.

    >>> processor()  # doctest: +SKIP
    'AMD EPYC (Zen 4)'
    """
    found = _cpuinfo()
    family, model = (int(found.get(name, "-1")) for name in ("cpu family", "model"))
    known = _GENERATIONS.get((found.get("vendor_id", ""), family), {})
    generation = known.get(model, known.get(None))
    name = found.get("model name") or platform.processor() or platform.machine()
    name = " ".join(re.sub(r"\((R|TM)\)|\bCPU\b|\bProcessor\b|@.*", " ", name, flags=re.IGNORECASE).split())
    return f"{name} ({generation})" if generation else name


def slug(name: str) -> str:
    """The file name for a processor.

    >>> slug("Intel Xeon (Emerald Rapids)")
    'intel-xeon-emerald-rapids'
    """
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")


def _cpuinfo() -> dict[str, str]:
    """The first processor in /proc/cpuinfo."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="ascii", errors="replace").partition("\n\n")[0].splitlines()
    except OSError:
        return {}
    return {name.strip(): value.strip() for name, _, value in (line.partition(":") for line in lines)}


def head(entries: int) -> dict[str, Any]:
    """The facts that are stored with the rows."""
    command = ["git", "show", "-s", "--format=%h, %as", "HEAD"]
    run = subprocess.run(command, cwd=FOLDER.parent, capture_output=True, text=True, check=False)
    return {"processor": processor(), "cores": os.cpu_count(), "commit": run.stdout.strip(), "entries": entries}


def keep(found: dict[str, Any], folder: Path) -> Path:
    """Write the file of this processor and the page. Earlier results of other rows are kept."""
    path = folder / f"{slug(found['processor'])}.json"
    found = {**found, "rows": earlier(folder) | found["rows"]}
    folder.mkdir(parents=True, exist_ok=True)
    path.write_text(as_text(found), encoding="utf-8")
    (folder / PAGE).write_text("\n".join(page(kept(folder))), encoding="utf-8")
    return path


def as_text(found: Mapping[str, Any]) -> str:
    """JSON with a line for each row, for readable diffs."""
    lines = [f"{json.dumps(key)}: {json.dumps(value)}" for key, value in found.items() if key != "rows"]
    rows = ",\n".join(
        f"{json.dumps(name, ensure_ascii=False)}: {json.dumps(row)}" for name, row in found["rows"].items()
    )
    return "{\n" + ",\n".join(lines) + f',\n"rows": {{\n{rows}\n}}}}\n'


def kept(folder: Path = FOLDER) -> list[dict[str, Any]]:
    """The results of all processors."""
    return [json.loads(path.read_text(encoding="utf-8")) for path in sorted(folder.glob("*.json"))]


def earlier(folder: Path = FOLDER) -> dict[str, dict[str, Any]]:
    """The stored rows of this processor, by name."""
    path = folder / f"{slug(processor())}.json"
    return dict(json.loads(path.read_text(encoding="utf-8"))["rows"]) if path.exists() else {}


def page(processors: Sequence[Mapping[str, Any]]) -> Iterable[str]:
    """A page that compares all processors."""
    yield from ("# Results by processor", "", "`python -m bench --keep` writes this page.", "")
    for number, one in enumerate(processors, 1):
        yield f"{number}. {one['processor']}, {one['cores']} cores; commit {one['commit']}; {one['entries']:,} entries."
    yield from ("", "A cell: our time in ms; the time of the best peer / ours, and its name.", "")
    yield f"| operation | {' | '.join(str(number) for number in range(1, len(processors) + 1))} |"
    yield f"|---|{'---|' * len(processors)}"
    for name in dict.fromkeys(name for one in processors for name in one["rows"]):
        yield f"| {name} | {' | '.join(_cell(one['rows'].get(name)) for one in processors)} |"
    yield ""


def _cell(row: Mapping[str, Any] | None) -> str:
    if row is None:
        return ""
    return f"{row['ms']:.3g}" + (f"; {row['ratio']:.2f} {row['peer']}" if row["peer"] else "")
