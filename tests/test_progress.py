"""A bar shows the progress of a long call where somebody sees it."""

import io
import sys
import time

import pytest

import binsparse_levels as bl
from binsparse_levels.progress import reporter


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_a_bar_is_drawn_on_a_terminal_after_half_a_second(monkeypatch):
    monkeypatch.setattr(sys, "stderr", Terminal())
    report = reporter(True)
    report("reading", 3, 3)
    report("writing", 1, 4)
    assert sys.stderr.getvalue() == ""
    time.sleep(0.55)
    report("writing", 2, 4)
    report("writing", 4, 4)
    before, first, last = sys.stderr.getvalue().split("\r")[1:]
    assert "3 / 3" in before
    assert "2 / 4" in first
    assert "a second" in first
    assert "s left" in first
    assert "4 / 4" in last
    assert last.endswith("\n")


def test_nothing_is_drawn_in_a_pipe_or_unasked(capsys, monkeypatch):
    monkeypatch.delitem(sys.modules, "ipykernel", raising=False)
    assert reporter(True) is reporter(False) is reporter(None) is None
    assert reporter(print) is print


@pytest.mark.parametrize("call", ["concatenate", "sweep"])
def test_a_function_is_called_with_the_progress(tmp_path, call):
    seen, tensor = [], bl.pack_dense([[0, 2.0], [3, 0]], "CSR")
    bl.write(tmp_path / "a.h5", tensor)

    def report(stage, done, total):
        seen.append((stage, done, total))

    {
        "concatenate": lambda: bl.concatenate([tmp_path / "a.h5"] * 2, tmp_path / "b.h5", progress=report),
        "sweep": lambda: bl.sweep([tensor, tensor], ["CSR"], ["bits"], progress=report),
    }[call]()
    assert seen
    assert all(0 <= done <= total and isinstance(stage, str) for stage, done, total in seen)
    assert seen[-1][1] == seen[-1][2]
