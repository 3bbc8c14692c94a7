"""The lines of each room and its budget in ARCHITECTURE.md: `python -m tests.helpers.lines`."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "binsparse_levels"


def budgets() -> dict[tuple[str, ...], int]:
    """The names of rooms, and the most lines that they may have together; no names for all others."""
    _, _, table = (ROOT / "ARCHITECTURE.md").read_text().partition("| rooms | lines at most |")
    rows = re.findall(r"^\| (.*) \| ([\d,]+) \|$", table, re.MULTILINE)
    return {tuple(re.findall(r"`([^`]+)`", names)): int(lines.replace(",", "")) for names, lines in rows}


def lines_of(name: str) -> int:
    """The lines of a module, or of all modules in a folder."""
    path = PACKAGE / name
    files = [path] if path.is_file() else [x for x in path.rglob("*.py") if "__pycache__" not in x.parts]
    return sum(len(file.read_text().splitlines()) for file in files)


def table() -> list[tuple[str, int, int]]:
    """The names of rooms, their lines, and their budget."""
    known = budgets()
    others = known.pop(())
    rows = [(", ".join(names), sum(map(lines_of, names)), budget) for names, budget in known.items()]
    rows.append(("the others", lines_of(".") - sum(lines for _, lines, _ in rows), others))
    return [*rows, ("all", lines_of("."), sum(budget for *_, budget in rows))]


if __name__ == "__main__":
    for name, lines, budget in table():
        print(f"{name:26} {lines:7,} of {budget:7,}{'  above' if lines > budget else ''}")
