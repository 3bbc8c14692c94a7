"""The law of composition: any features and any two ways give the oracle's numbers and all metadata, or a refusal."""

from __future__ import annotations

import collections
import contextlib
import itertools
import os
import tempfile
from dataclasses import replace
from unittest import mock

import numba
import numpy as np
from helpers.asserted import SMALL, asserted
from hypothesis import strategies as st

from binsparse_levels import BinsparseError
from binsparse_levels.compute import store
from binsparse_levels.parallel import using_threads
from binsparse_levels.thresholds import using_thresholds
from composition import borrowed, files, functions, kinds
from composition.features import cases, check
from composition.known import explains
from composition.refusals import refused
from composition.ways import WAYS

DRAWN = collections.Counter()  # of examples, by (feature, feature, way, way)
MODULES = borrowed, files, functions  # which register their ways


def interpreted(function, *_):
    """A nest of loops as plain Python, in the place of the one that numba takes a second to compile."""

    def run(*args):
        with np.errstate(all="ignore"):
            return function(*args)

    return run


@contextlib.contextmanager
def prepared(*, compiled=False):
    """Plug-in kinds are known, and unless `compiled`, nests of loops are not."""
    fast = store._fast if compiled or numba.config.DISABLE_JIT else interpreted
    with kinds.registered(), asserted(), mock.patch.object(store, "_fast", fast):
        _forget()
        yield
    _forget()


def _forget():
    store.compiled.cache_clear()
    store.function_of.cache_clear()


def compose(draw):
    """Draw a tensor, two ways and thresholds, and assert the law."""
    names = draw(st.lists(st.sampled_from(sorted(SMALL)), unique=True))
    sizes = {name: draw(st.sampled_from(SMALL[name])) for name in names}
    threads = using_threads(draw(st.integers(1, 3)))
    with tempfile.TemporaryDirectory() as folder, using_thresholds(**sizes), threads:
        case = draw(cases(folder))
        names = [draw(st.sampled_from(sorted(WAYS))) for _ in range(2)]
        DRAWN.update((*pair, *names) for pair in itertools.combinations(sorted(case.features), 2))
        tensor, model = case.tensor, case.model
        for number, name in enumerate(names):
            there = os.path.join(folder, str(number))
            os.mkdir(there)
            try:
                made = WAYS[name](tensor, model, draw, there)
                after = check(*made) if made is not None else check(tensor, replace(model, padding=False))
            except Exception as error:
                if isinstance(error, BinsparseError | TypeError) and refused(name, model, tensor, error):
                    continue
                if explains(names[: number + 1], model, error):
                    return
                raise
            if made is not None:
                tensor, model = made[0], after
