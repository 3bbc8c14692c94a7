"""The command line in a terminal: a pseudo-terminal of the system, whose screen pyte draws as a real one would."""

import contextlib
import json
import os
import select
import signal
import struct
import subprocess
import sys
import time

import numpy as np
import pytest

from binsparse_levels import pack, write

fcntl, pty, termios = (pytest.importorskip(name) for name in ("fcntl", "pty", "termios"))  # not on Windows

pytestmark = pytest.mark.slow

BLOCK = "█"  # of the bars


class Terminal:
    """A process in a terminal. history: each screen that was seen, as lines of text."""

    def __init__(self, *words, columns=80, lines=30):
        import pyte  # here, because the import takes a while, and the tests are slow ones

        self.screen = pyte.Screen(columns, lines)
        self._stream = pyte.ByteStream(self.screen)
        self.history, self.bytes = [], b""
        self._ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
        environment = {**os.environ, "TERM": "xterm-256color", "COLUMNS": "", "LINES": ""}
        environment = {name: value for name, value in environment.items() if value and name != "NO_COLOR"}
        command = [sys.executable, "-m", "binsparse_levels", *map(str, words)]
        self.process = subprocess.Popen(
            command, stdin=theirs, stdout=theirs, stderr=theirs, env=environment, start_new_session=True
        )
        os.close(theirs)

    def read(self, seconds):
        """Draw what comes within this time. Returns whether anything did."""
        if not select.select([self._ours], [], [], seconds)[0]:
            return False
        with contextlib.suppress(OSError):  # so Linux says that the other end is closed
            got = os.read(self._ours, 2**16)
            self.bytes += got
            self._stream.feed(got)
            self.history.append(list(self.screen.display))
            return bool(got)
        return False

    def until(self, wanted, seconds=60):
        """Read until a screen fulfils a condition."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            if self.read(0.1) and wanted("\n".join(self.screen.display)):
                return
        raise AssertionError(f"not seen in time: {self.screen.display}")

    def end(self, seconds=90):
        """Read to the end. Returns the exit status and the lines of the last screen."""
        end = time.monotonic() + seconds
        while (self.read(0.05) or self.process.poll() is None) and time.monotonic() < end:
            pass
        while self.read(0.05):
            pass
        status = self.process.wait(timeout=10)
        os.close(self._ours)
        return status, [line.rstrip() for line in self.screen.display if line.strip()]

    def colours(self):
        """The colours on the screen."""
        return {cell.fg for line in self.screen.buffer.values() for cell in line.values()} - {"default"}


@pytest.fixture(scope="module")
def large(tmp_path_factory):
    path = tmp_path_factory.mktemp("files") / "a.h5"
    random = np.random.default_rng(0)
    coords = [random.integers(0, 4000, 3_000_000) for _ in range(2)]
    write(path, pack(coords, np.ones(3_000_000), (4000, 4000), "CSR", duplicates="sum"))
    return path


@pytest.fixture
def small(tmp_path):
    write(tmp_path / "a.h5", pack([[0, 2], [1, 0]], [1.0, 2.0], (3, 4), "CSC", attributes={"x": "\x1b[31mred"}))
    return tmp_path / "a.h5"


def test_the_bar_moves(large, tmp_path):
    terminal = Terminal("convert", large, tmp_path / "b.h5", "--format", "CSC", "--memory", "300M")
    assert terminal.end()[0] == 0
    seen = ["\n".join(screen) for screen in terminal.history]
    bars = [text for text in seen if BLOCK in text]
    assert len(bars) > 1
    assert len({text.count(BLOCK) for text in bars}) > 1
    for stage in ("sample", "partition", "pack", "writing"):
        assert any(stage in text for text in seen), stage


def test_ctrl_c_leaves_no_bar_and_no_file(large, tmp_path):
    terminal = Terminal("convert", large, tmp_path / "b.h5", "--format", "CSC", "--memory", "300M")
    terminal.until(lambda text: BLOCK in text)
    os.killpg(terminal.process.pid, signal.SIGINT)
    status, lines = terminal.end()
    assert status == 130
    said = [line for line in lines if "compiling kernels" not in line]  # a note of another thread
    assert said[-1] == "binsparse-levels: error: interrupted"
    assert not any("Traceback" in line for line in lines)
    assert not terminal.screen.cursor.hidden
    assert [path.name for path in tmp_path.iterdir()] == []


@pytest.mark.parametrize("columns", [30, 50, 120])
@pytest.mark.parametrize("command", [["info"], ["list"], ["check"], ["advise"]])
def test_windows_of_any_width(small, columns, command):
    status, lines = Terminal(*command, small, columns=columns, lines=80).end()
    assert status == 0
    words = "".join(lines).replace(" ", "").replace("\n", "")
    assert "CSC" in words
    assert "Traceback" not in words


def test_what_a_file_says_does_not_reach_the_terminal(small):
    terminal = Terminal("info", small)
    status, lines = terminal.end()
    assert status == 0
    assert b"\x1b[31m" not in terminal.bytes
    assert "red" in "\n".join(lines)
    assert "red" not in terminal.colours()


def test_json_stays_json_in_a_terminal(small, tmp_path):
    terminal = Terminal("convert", small, tmp_path / "b.h5", "--json", columns=200)
    status, lines = terminal.end()
    assert status == 0
    told = json.loads("\n".join(lines))
    assert told["path"] == str(tmp_path / "b.h5")
