"""The long run: python -m tests.composition --minutes 60 prints what was drawn, and each failure at its smallest."""

import argparse
import itertools
import sys
import time
import traceback
import warnings
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from composition import laws, refusals


def place(error):
    """What tells one failure from another: its type, and the last line of the law and of the package."""
    lines = [line for line in traceback.extract_tb(error.__traceback__) if "hypothesis" not in line.filename]
    of_law = [f"{Path(x.filename).name}:{x.lineno}" for x in lines if "composition" in x.filename][-1:]
    return (type(error).__name__, *of_law, f"{Path(lines[-1].filename).name}:{lines[-1].lineno}")


def alone(error):
    """The failures of a group, which Hypothesis raises where it has several."""
    if isinstance(error, BaseExceptionGroup):
        for one in error.exceptions:
            yield from alone(one)
    else:
        yield error


def main():
    parser = argparse.ArgumentParser(prog="python -m tests.composition", description=__doc__)
    parser.add_argument("--minutes", type=float, default=1)
    parser.add_argument("--examples", type=int, help="so many examples instead, the same ones in every run")
    parser.add_argument(
        "--compiled", action="store_true", help="compile every nest of loops, which takes a second each"
    )
    parser.add_argument("--refusals", action="store_true", help="print the table of refusals and stop")
    options = parser.parse_args()
    if options.refusals:
        print(refusals.page())
        return 0
    warnings.simplefilter("error")
    end, failures, examples = time.monotonic() + 60 * options.minutes, {}, 0

    def law(data):
        nonlocal examples
        examples += 1
        try:
            laws.compose(data.draw)
        except Exception as error:
            if "hypothesis" in type(error).__module__ or place(error) in failures:
                return
            raise

    fixed = options.examples is not None
    rounds = itertools.cycle([(200, options.compiled), (20, True)])  # compiling takes a second for each nest
    while time.monotonic() < end and not (fixed and examples):
        count, compiled = next(rounds)
        patient = settings(
            max_examples=options.examples or count, derandomize=fixed, deadline=None, database=None,
            suppress_health_check=list(HealthCheck),
        )  # fmt: skip
        with laws.prepared(compiled=compiled):
            try:
                patient(given(st.data())(law))()
            except* Exception as group:
                for error in alone(group):
                    failures[place(error)] = error
                    told = [*traceback.format_tb(error.__traceback__)[-3:], *traceback.format_exception_only(error)]
                    print(f"--- {place(error)}\n{''.join(told)}", flush=True)  # with the case, which is in its notes
    print(f"{examples} examples, {len(laws.DRAWN)} combinations of two features and two ways, {len(failures)} failures")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
