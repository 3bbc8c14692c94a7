"""Strict JSON: duplicate keys are refused in linear time."""

import time

import pytest

from binsparse_levels import DescriptorError, Limits
from binsparse_levels.formats.json import load_json


def test_many_keys_of_which_the_last_is_there_twice():
    text = "{" + ", ".join(f'"{k}": 1' for k in range(70_000)) + ', "69999": 1}'
    begin = time.perf_counter()
    with pytest.raises(DescriptorError, match="69999"):
        load_json(text, Limits())
    assert time.perf_counter() - begin < 5
