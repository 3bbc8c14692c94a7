"""Arrays whose accesses are counted, in Python and in compiled loops, and the lines that caches fetch for them."""

import operator

import numpy as np
from numba.core.types import Type
from numba.extending import make_attribute_wrapper, models, overload, register_model, typeof_impl, unbox

from .jit import called, kernel


class Counted:
    """An array, in whose place a loop takes it. Its first item begins a line.

    own: its row in `counts`, the number of its first line, the bytes of a line. links: for each cache and line the
    lines used after and before it, or -1 for a line that is not in the cache; the last row is that of the ends. free:
    the lines that each cache can still take. counts: accesses, then the lines that each cache fetched.
    """

    def __init__(self, *fields):
        self.fields = fields
        self.array, self.own, self.links, self.free, self.counts = fields

    def __getitem__(self, key):
        count(self, key)
        return self.array[key]

    def __setitem__(self, key, value):
        count(self, key)
        self.array[key] = value

    def __len__(self):
        return len(self.array)


def count(counted, key):
    """Count an access to an item."""
    at = np.int64(0)
    if isinstance(key, tuple):
        for size, k in zip(counted.array.shape, key):  # noqa: B905
            at = at * size + np.int64(k)
    else:
        at += np.int64(key)
    line = counted.own[1] + at * counted.array.itemsize // counted.own[2]
    use(line, counted.own[0], counted.links, counted.free, counted.counts)


@kernel  # once for all types of arrays
def use(line, row, links, free, counts):
    """Count an access to a line, which each cache then has used last. A full cache drops its oldest line."""
    counts[row, 0] += 1
    ends = links.shape[1] - 1
    for k in range(len(free)):
        last, after, before = links[k, ends, 1], links[k, line, 0], links[k, line, 1]
        if last == line:
            continue
        if after >= 0:
            links[k, after, 1], links[k, before, 0] = before, after
        else:
            counts[row, 1 + k] += 1
            free[k] -= 1
            if free[k] < 0:
                oldest = links[k, ends, 0]
                then = links[k, oldest, 0]
                links[k, ends, 0], links[k, then, 1], links[k, oldest, 0] = then, ends, -1
                free[k], last = 0, links[k, ends, 1]
        links[k, line, 0], links[k, line, 1] = ends, last
        links[k, ends, 1] = links[k, last, 0] = line


_count = called(count)


class CountedType(Type):
    """The type of `Counted` in compiled loops, which numba passes as the tuple of its fields."""

    def __init__(self, fields):
        self.fields = fields
        super().__init__(f"Counted{fields}")


typeof_impl.register(Counted)(lambda counted, context: CountedType(typeof_impl(counted.fields, context)))
register_model(CountedType)(lambda manager, made: models.TupleModel(manager, made.fields))
for number, name in enumerate(("array", "own", "links", "free", "counts")):
    make_attribute_wrapper(CountedType, f"f{number}", name)


@unbox(CountedType)
def _unboxed(made, counted, context):
    fields = context.pyapi.object_getattr_string(counted, "fields")
    native = context.unbox(made.fields, fields)
    context.pyapi.decref(fields)
    return native


@overload(operator.getitem)
def _item(counted, key):
    def item(counted, key):
        _count(counted, key)
        return counted.array[key]

    return item if isinstance(counted, CountedType) else None


@overload(operator.setitem)
def _set_item(counted, key, value):
    def set_item(counted, key, value):
        _count(counted, key)
        counted.array[key] = value

    return set_item if isinstance(counted, CountedType) else None


@overload(len)
def _length(counted):
    return (lambda counted: len(counted.array)) if isinstance(counted, CountedType) else None
