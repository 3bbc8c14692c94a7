"""The lines of each room and its budget in ARCHITECTURE.md: `python -m tests.helpers.lines`."""

from pathlib import Path

PACKAGE = Path(__file__).parents[2] / "binsparse_levels"
BUDGETS = {
    ("building",): 2400,
    ("containers",): 3800,
    ("io",): 3800,
    ("engine", "kernels", "compute"): 6000,
    ("looking",): 1500,
    ("tensors",): 2700,
    ("commands", "cli.py"): 1050,
    ("levels", "formats"): 4950,
}
REST = 3800  # everything else


def lines_of(name: str) -> int:
    """The lines of a module, or of all modules in a folder."""
    path = PACKAGE / name
    files = [path] if path.is_file() else [x for x in path.rglob("*.py") if "__pycache__" not in x.parts]
    return sum(len(file.read_text().splitlines()) for file in files)


def table() -> list[tuple[str, int, int]]:
    """The names of rooms, their lines, and their budget."""
    rows = [(", ".join(names), sum(map(lines_of, names)), budget) for names, budget in BUDGETS.items()]
    known = sum(lines for _, lines, _ in rows)
    rows.append(("everything else", lines_of(".") - known, REST))
    return [*rows, ("all", lines_of("."), sum(budget for *_, budget in rows))]


if __name__ == "__main__":
    for name, lines, budget in table():
        print(f"{name:26} {lines:7,} of {budget:7,}{'  above' if lines > budget else ''}")
