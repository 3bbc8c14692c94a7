"""What a function is, as far as it can be told: so that a build goes on with the same function, and with no other."""

from __future__ import annotations

import functools
import hashlib
import pickle
import types
from collections.abc import Iterator
from typing import Any

from ..errors import OptionError, Problem


def identity_of(function: Any) -> str:
    """A checksum of a function's code, of its arguments, and of all values and functions that the code names.

    Raises OptionError where the function holds what cannot be pickled.

    >>> ones = [identity_of(lambda k: k + 1) for _ in range(2)]
    >>> ones[0] == ones[1] != identity_of(lambda k: k + 2)
    True
    """
    digest = hashlib.blake2b(digest_size=16)
    try:
        for part in _parts(function, set()):
            digest.update(len(part).to_bytes(8, "little") + part)
    except (pickle.PicklingError, TypeError, AttributeError, RecursionError) as error:
        what = f"the function holds what cannot be compared ({error!s:.80}); tell it from others by a text, key="
        raise OptionError(Problem("key", what)) from None
    return digest.hexdigest()


def _parts(thing: Any, seen: set[int]) -> Iterator[bytes]:
    if isinstance(thing, functools.partial):
        yield from _all(thing.func, thing.args, thing.keywords, seen=seen)
    elif isinstance(thing, types.MethodType):
        yield from _all(thing.__func__, thing.__self__, seen=seen)
    elif isinstance(thing, types.FunctionType):
        if id(thing) in seen:  # it calls itself
            return
        seen.add(id(thing))
        yield from _of_code(thing.__code__)
        named = [thing.__globals__[name] for name in _names(thing.__code__) if name in thing.__globals__]
        cells = [cell.cell_contents for cell in thing.__closure__ or ()]
        yield from _all(thing.__defaults__, thing.__kwdefaults__, *cells, *named, seen=seen)
    elif isinstance(thing, types.ModuleType | type | types.BuiltinFunctionType):
        yield f"{getattr(thing, '__module__', '')}.{thing.__name__}".encode()
    else:
        yield pickle.dumps(thing, protocol=4)


def _all(*things: Any, seen: set[int]) -> Iterator[bytes]:
    for thing in things:
        yield from _parts(thing, seen)


def _of_code(code: types.CodeType) -> Iterator[bytes]:
    yield code.co_code
    yield repr(code.co_names).encode()
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _of_code(constant)
        else:
            yield repr(constant).encode()


def _names(code: types.CodeType) -> Iterator[str]:
    """The names that the code, or a function within it, looks up."""
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _names(constant)
