"""Bits of stored coordinates are gathered as Python gathers them, with the instruction of a processor and without."""

import os
import subprocess
import sys

import numpy as np
import pytest

from binsparse_levels import IndexMap, parse_map
from binsparse_levels.compute.mapping import sum_of
from binsparse_levels.kernels import jit

CODE = """
import numba, numpy as np
from binsparse_levels.compute.mapping import _gathered
from binsparse_levels.kernels import jit
rng = np.random.default_rng(0)
for count in (1, 2, 5, 21, 40, 63, 64):
    bits = sorted(rng.choice(64, count, replace=False).tolist())
    space = {"u8": np.uint64, "gathered": jit.gathered}
    exec(f"def f(x0): return {_gathered('x0', bits, 1)}", space)
    compiled = numba.njit(space["f"])
    for word in (0, 2**64 - 1, *rng.integers(0, 2**64, 50, np.uint64).tolist()):
        expected = sum((word >> bit & 1) << i for i, bit in enumerate(bits))
        assert int(space["f"](np.uint64(word))) == int(compiled(np.uint64(word))) == expected, (bits, word)
if not numba.config.DISABLE_JIT:
    print("pext" in str(compiled.inspect_asm()))
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    "told", [{}, {"NUMBA_CPU_NAME": "generic", "NUMBA_CPU_FEATURES": ""}, {"NUMBA_CPU_NAME": "znver2"}]
)
def test_one_instruction_and_its_steps_agree(told):
    run = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, env=os.environ | told)
    assert run.returncode == 0, run.stderr
    assert not told or run.stdout.strip() in ("False", "")


@pytest.mark.parametrize(
    ("text", "shape", "gathers"),
    [
        (str(IndexMap.alto((3000, 4000, 5000))), (3000, 4000, 5000), [1, 1, 1]),
        (str(IndexMap.blco((3000, 4000, 5000), 20)), (3000, 4000, 5000), [2, 2, 2]),
        ("(0/4 0%2 0/2%2)", (8,), [0]),  # the other way round: digit by digit
        ("(0/6 1 0/3%2 0%3)", (12, 2), [0, 0]),  # above a radix of 3
        ("(0/8%2 1 0/2%4 0%2 0/16)", (32, 2), [1, 0]),
    ],
)
def test_the_text_of_a_coordinate(text, shape, gathers):
    """What is gathered, and what not, gives the coordinates that `backward` gives."""
    map = parse_map(text, shape)
    rng = np.random.default_rng(0)
    stored = [rng.integers(0, size, 50) for size in map.stored_shape]
    sizes = {f"w0d{k}": np.uint64(size) for k, size in enumerate(shape)}
    known = {"u8": np.uint64, "gathered": jit.gathered, **sizes}
    for expected, summands, count in zip(map.backward(stored), map.parts(), gathers, strict=True):
        texts = [sum_of("", f"x{s}", parts, 0) for s, parts in summands.items()]
        assert sum(text.count("gathered") for text in texts) == count
        for i, x in enumerate(expected.tolist()):
            names = {f"x{s}": np.uint64(column[i]) for s, column in enumerate(stored)}
            with np.errstate(over="ignore"):
                assert sum(int(eval(one, known | names)) for one in texts) == x
