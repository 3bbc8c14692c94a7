"""Attempt every case, in a process of its own under a limit of memory and of time, and print what came of it."""

import argparse
import contextlib
import importlib
import os
import signal
import tempfile
import time
import warnings
from collections import defaultdict
from pathlib import Path
from typing import Any

from binsparse_levels import BinsparseError, Tensor, list_tensors, read
from binsparse_levels.io import describe

from .corpus import CASES, FAMILY, READ, Attempt, Case, source
from .supervise import MEMORY, limit_memory, watch, work

SUBJECTS = ("descriptors", "arrays", "hdf5_files", "zarr_files", "other_files", "systems_files")
SECONDS = 1  # of the processor: machines are shared
PATIENCE = 10


def load(subjects: list[str]) -> list[Case]:
    for subject in subjects:
        importlib.import_module(f".{subject}", __package__)
    return CASES


def run_case(case: Case) -> list[dict[str, Any]]:
    """What each attempt came to: container, outcomes, and what is wrong with them."""
    with contextlib.suppress(ImportError):  # which takes a second, in whichever attempt comes first
        import sklearn.datasets  # noqa: F401
    with tempfile.TemporaryDirectory(prefix="attack-", dir=MEMORY) as name:
        folder = Path(name)
        return [_attempt(case, each, folder) for each in case.make(folder)]


def _attempt(case: Case, each: Attempt, folder: Path) -> dict[str, Any]:
    wrong = []
    calls = {"strict": lambda: _read(each, lenient=False)}
    if not callable(each.place):
        calls["lenient"] = lambda: _read(each, lenient=True)
        calls["describe"] = lambda: describe(each.place)
        calls["list"] = lambda: list_tensors(each.place)
    outcomes = {}
    for way, call in calls.items():
        before, begin = _snapshot(folder), time.process_time()
        outcome, fault = _outcome(call)
        seconds = time.process_time() - begin
        wanted = {"strict": case.expected, "lenient": case.lenient}.get(way) or (READ, *FAMILY)
        if outcome not in wanted:
            wrong.append(f"{way}: {outcome} {fault[:200]!r}, expected {' or '.join(wanted)}")
        if seconds > SECONDS and case.number not in (92, 93):  # which import scikit-learn, and load a kernel
            wrong.append(f"{way}: took {seconds:.1f} s")
        if not fault.replace("\n", "").isprintable():
            wrong.append(f"{way}: unprintable text {fault[:200]!r}")
        if not callable(each.place) and _snapshot(folder) != before:
            wrong.append(f"{way}: files were changed")
        outcomes[way] = outcome
    return {"number": case.number, "what": case.what, "container": each.container, "outcomes": outcomes, "wrong": wrong}


def _read(each: Attempt, *, lenient: bool) -> None:
    if callable(each.place):
        each.place()
        return
    tensor: Tensor = read(each.place, lenient=lenient)
    if each.verify is not None and not lenient:
        assert each.verify(tensor) is not False, "another content"


def _outcome(call: Any) -> tuple[str, str]:
    """`read`, a class of the family, or what was raised that is none of it; and its text."""
    signal.alarm(PATIENCE)  # a pipe that nobody writes to is waited for without an end
    try:
        call()
    except BinsparseError as error:
        names = [kind.__name__ for kind in type(error).__mro__]
        return next((name for name in names if name in FAMILY), names[0]), str(error)
    except BaseException as error:
        return f"bare {type(error).__name__}", repr(error)
    finally:
        signal.alarm(0)
    return READ, ""


def _too_long(*_: Any) -> None:
    raise TimeoutError(f"not done in {PATIENCE} s")


def _snapshot(folder: Path) -> dict[str, tuple[int, int]]:
    found = {}
    for place, _, names in os.walk(folder):
        for path in (place, *(os.path.join(place, name) for name in names)):
            status = os.lstat(path)
            found[path] = status.st_mtime_ns, status.st_size
    return found


def _warm_up() -> None:
    """What is imported and compiled at first is no part of any case."""
    from .corpus import CONTAINERS

    with tempfile.TemporaryDirectory() as name:
        for put in CONTAINERS.values():
            place = put(Path(name) / "a", source())
            for call in (read, describe, list_tensors):
                call(place)
        for format in ("COOR", "CSC", "sparse(2)"):
            read(place, lenient=True).convert(format).to_dense()


def attempts(subjects: list[str]) -> list[dict[str, Any]]:
    """The results of all cases of these subjects, crashes and hangs put down to their case."""
    cases = load(subjects)
    results = []
    for k, found in watch("__main__", ["--work", *subjects]):
        if isinstance(found, str):
            case = cases[k]
            found = [{"number": case.number, "what": case.what, "container": "?", "outcomes": {}, "wrong": [found]}]
        results += found
    return results


def table(results: list[dict[str, Any]]) -> str:
    """Markdown: a row for each number and what it is about."""
    rows: dict[Any, Any] = defaultdict(lambda: ([], [], []))
    for result in results:
        containers, outcomes, wrong = rows[result["number"], result["what"]]
        outcome = result["outcomes"].get("strict", "")
        containers += [result["container"]] * (result["container"] not in containers)
        outcomes += [outcome] * (outcome not in outcomes)
        wrong += result["wrong"]
    lines = ["| no. | case | containers | outcome | |", "|---|---|---|---|---|"]
    for (number, what), (containers, outcomes, wrong) in sorted(rows.items()):
        verdict = f"**{len(wrong)} wrong**: {wrong[0]}".replace("|", "\\|") if wrong else "as it should be"
        lines.append(f"| {number} | {what} | {', '.join(containers)} | {', '.join(outcomes)} | {verdict} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.attacks", description=__doc__)
    parser.add_argument("subjects", nargs="*", default=SUBJECTS, help=f"of {', '.join(SUBJECTS)}")
    parser.add_argument("--work", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--first", type=int, default=0, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.work:
        warnings.simplefilter("ignore")
        cases = load(options.subjects)
        _warm_up()
        limit_memory()
        signal.signal(signal.SIGALRM, _too_long)
        with open(os.devnull, "w") as nowhere, contextlib.redirect_stderr(nowhere):
            work(cases, run_case, options.first)
        return
    print(table(attempts(options.subjects)))


if __name__ == "__main__":
    main()
