"""What the board has found on each processor: a JSON file for each, and all of them side by side."""

from __future__ import annotations

import json
import subprocess
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from .machine import described, slug
from .picture import picture
from .row import BEFORE, OURS, OURS_2

FOLDER = Path(__file__).parent / "results"
PAGE = "README.md"


def keep(head: dict[str, Any], found: Sequence[dict[str, Any]], folder: Path) -> Path:
    """Write the file of this processor. Rows that were not measured now stay as they are; each tells its commit."""
    path = folder / f"{slug(head['processor'])}.json"
    earlier = json.loads(path.read_text(encoding="utf-8"))["rows"] if path.exists() else []
    here = head["commit"]
    rows = {(row["row"], row["entries"]): row for row in earlier}
    rows |= {(row["row"], row["entries"]): condensed(row) | {"commit": here} for row in found}
    folder.mkdir(parents=True, exist_ok=True)
    path.write_text(as_text({**head, "rows": list(rows.values())}), encoding="utf-8")
    (folder / PAGE).write_text("\n".join(page(kept(folder))), encoding="utf-8")
    path.with_suffix(".svg").write_text(picture(list(rows.values())), encoding="utf-8")
    return path


def as_text(found: dict[str, Any]) -> str:
    """JSON with a line for each field and each row, so that changes are seen line by line."""
    lines = [
        f"{json.dumps(key)}: {json.dumps(told, ensure_ascii=False)}" for key, told in found.items() if key != "rows"
    ]
    rows = ",\n".join(json.dumps(row, ensure_ascii=False) for row in found["rows"])
    return "{\n" + ",\n".join(lines) + f',\n"rows": [\n{rows}\n]}}\n'


def condensed(row: dict[str, Any]) -> dict[str, Any]:
    """Of a measured row: ours, the peers and the limits in seconds, the verdict, bytes, the part of the copy limit."""
    times = {
        name: {key: told[key] for key in ("minimum", "median")} for name, told in row["times"].items() if name != BEFORE
    }
    ours = {name: times.pop(name) for name in (OURS, OURS_2) if name in times}
    limits = {name: times.pop(name) for name in row["limits"]}
    rest = {key: row[key] for key in ("moved", "of_copy") if row.get(key) is not None}
    return {
        "row": row["row"],
        "entries": row["entries"],
        **ours,
        "peers": times,
        "limits": limits,
        **row["verdict"],
        **rest,
        "peaks": row.get("peaks", {}),
    }


def commit() -> str:
    """The commit of the checkout, with a plus where files differ from it; empty outside of one."""
    run = subprocess.run(
        ["git", "describe", "--always", "--dirty=+"], cwd=FOLDER.parent, capture_output=True, text=True, check=False
    )
    return run.stdout.strip()


def kept(folder: Path = FOLDER) -> list[dict[str, Any]]:
    """The results of all processors."""
    return [json.loads(path.read_text(encoding="utf-8")) for path in sorted(folder.glob("*.json"))]


def page(processors: Sequence[dict[str, Any]], text: str = "") -> Iterable[str]:
    """What is kept, for people: the rows with that text."""
    yield from ("# What was measured on each processor", "", "`python -m bench --keep` writes this page.", "")
    yield from side_by_side(processors, text)
    yield ""


def side_by_side(processors: Sequence[dict[str, Any]], text: str) -> Iterable[str]:
    """A table: for each processor the time, the ratio, its share of the copy limit, the verdict."""
    for number, one in enumerate(processors, 1):
        load = f", load {one['load'][0]:.0f}" if "load" in one else ""
        yield f"{number}. {described(one['processor'], one['speeds'])}; {one['date']}, commit {one['commit']}{load}."
        words = Counter(row["word"] for row in one["rows"])
        counted = ", ".join(f"{count} {word}" for word, count in words.items())
        if all("behind" in row for row in one["rows"]):
            counted += f"; {sum(bool(row['behind']) for row in one['rows'])} behind a peer"
        yield f"   {len(one['rows'])} rows: {counted}. {one.get('note', '')}".rstrip()
    yield ""
    heads = [f"{number}: {name}" for number in range(1, len(processors) + 1) for name in ("ms", "ratio", "copy", "")]
    yield f"| operation | entries | {' | '.join(heads)} |"
    yield f"|---|---:|{'---:|---|---:|---|' * len(processors)}"
    by_key = [{(row["row"], row["entries"]): row for row in one["rows"]} for one in processors]
    for name, entries in dict.fromkeys(key for rows in by_key for key in rows):
        if text in name:
            cells = (cell for rows in by_key for cell in _cells(rows.get((name, entries))))
            yield f"| {name} | {entries:,} | {' | '.join(cells)} |"


def _cells(row: dict[str, Any] | None) -> Iterable[str]:
    if row is None:
        return ["", "", "", ""]
    ratio = "" if row["ratio"] is None else f"{row['ratio']:.3g} {row['against']}"
    of_copy = f"{100 * row['of_copy']:.0f} %" if "of_copy" in row else ""
    return [f"{1e3 * row[OURS]['minimum']:.3g}", ratio, of_copy, row["word"]]
