"""The chunks of `bitpacking` as vector code, written in LLVM's language: numba makes scalars of loops over four lanes.

Each codec and direction has one function, with a case for each width, so that all shifts are constants. A vector has
`LANES` lanes, the values of LANES / 4 positions. For 33 M values in memory, one thread decodes as fast as it can store.
A loop compiled by numba reaches a tenth to a twentieth of that speed.
"""

from llvmlite import binding, ir
from numba import config, types
from numba.extending import intrinsic

from .codecs import LESS_ONE, PLAIN, STEPPING, ZIGZAG


def _lanes():
    """The number of lanes of a vector register here. Any other number gives the same results, more slowly."""
    features = {} if config.CPU_NAME else binding.get_host_cpu_features()
    return 16 if features.get("avx512f") else 8 if features.get("avx2") else 4


LANES = _lanes()
_GROUP = LANES // 4
_WORD = ir.IntType(32)
_POINTER = _WORD.as_pointer()
_VECTOR = ir.VectorType(_WORD, LANES)
_ROW = ir.VectorType(_WORD, 4)


def _constant(kind, words):
    return ir.Constant(kind, [word & 0xFFFFFFFF for word in words])


def _all(word, kind=_VECTOR):
    return _constant(kind, [word] * kind.count)


def _pick(block, a, b, places):
    """The lanes `places` of the concatenation of a and b."""
    return block.shuffle_vector(a, b, ir.Constant(ir.VectorType(_WORD, len(places)), list(places)))


def _place(block, pointer, at, kind):
    return block.bitcast(block.gep(pointer, [ir.Constant(ir.IntType(64), at)]), kind.as_pointer())


def _load(block, pointer, at, kind=_VECTOR):
    return block.load(_place(block, pointer, at, kind), align=4)


def _store(block, value, pointer, at):
    block.store(value, _place(block, pointer, at, value.type), align=4)


def _library(module, name, result, arguments):
    """An intrinsic function of LLVM."""
    name = f"llvm.{name}.v{LANES}i32"
    return module.globals.get(name) or ir.Function(module, ir.FunctionType(result, arguments), name)


def _function(module, name, kind):
    """A new function of two arrays that do not overlap, and a builder for its first block."""
    function = ir.Function(module, kind, name)
    function.linkage = "internal"
    for argument in function.args[:2]:
        argument.add_attribute("noalias")
    return function, ir.IRBuilder(function.append_basic_block())


def _by_width(function, block, width, emit, leave):
    """A switch that runs emit(block, B) for the width B."""
    end = function.append_basic_block()
    leave(ir.IRBuilder(end))
    switch = block.switch(width, end)
    for B in range(33):
        case = function.append_basic_block()
        switch.add_case(ir.Constant(_WORD, B), case)
        inside = ir.IRBuilder(case)
        emit(inside, B)
        inside.branch(end)


def _unpack(module, codec):
    """A function void (words, out, width, start) that decodes the 128 values of a chunk."""
    name = f"unpack_{codec}"
    if name in module.globals:
        return module.globals[name]
    arguments = [_POINTER, _POINTER, _WORD, _WORD]
    function, entry = _function(module, name, ir.FunctionType(ir.VoidType(), arguments))
    words, out, width, start = function.args
    blank = ir.Constant(_VECTOR, ir.Undefined)
    first = _pick(entry, entry.insert_element(blank, start, ir.Constant(_WORD, 0)), blank, [0] * LANES)

    def emit(block, B):
        before = _pick(block, first, first, [0] * 4)  # the value before, in all lanes of a row
        for k in range(0, 32, _GROUP):
            if B == 32:
                value = _load(block, words, 4 * k)
            elif B == 0:
                value = {PLAIN: _all(0), LESS_ONE: _all(1)}.get(codec, first)
            else:
                value = _fields(module, block, words, B, k)
                if codec == LESS_ONE:
                    value = block.add(value, _all(1))
                if codec == ZIGZAG:
                    sign = block.sub(_all(0), block.and_(value, _all(1)))
                    value = block.xor(block.lshr(value, _all(1)), sign)
            if codec not in STEPPING or B in (0, 32):
                _store(block, value, out, 4 * k)
                continue
            value = _sums(block, value)
            for row in range(0, LANES, 4):  # each depends on the previous one by one addition only
                sums = _pick(block, value, value, range(row, row + 4))
                _store(block, block.add(sums, before), out, 4 * k + row)
                before = block.add(before, _pick(block, sums, sums, [3] * 4))

    _by_width(function, entry, width, emit, lambda block: block.ret_void())
    return function


def _fields(module, block, words, B, k):
    """The fields of B bits, 0 < B < 32, at the positions from k on."""
    rows, shifts = zip(*(divmod((k + j) * B, 32) for j in range(_GROUP)), strict=True)
    by = _constant(_VECTOR, [s for s in shifts for _ in range(4)])
    low = _rows(block, words, B, rows)
    if max(shifts) + B > 32:  # some begin in one row and end in the next
        high = _rows(block, words, B, [min(row + 1, B - 1) for row in rows])
        low = block.call(_library(module, "fshr", _VECTOR, [_VECTOR] * 3), [high, low, by])
    else:
        low = block.lshr(low, by)
    return block.and_(low, _all((1 << B) - 1))


def _rows(block, words, B, rows):
    """The given rows of a chunk of B rows, side by side. The row numbers never decrease and lie close together."""
    if B < _GROUP:  # then there are two different rows at most
        a, b = (_load(block, words, 4 * row, _ROW) for row in (rows[0], rows[-1]))
        return _pick(block, a, b, [lane + 4 * (row != rows[0]) for row in rows for lane in range(4)])
    base = min(rows[0], B - _GROUP)  # so that nothing behind the chunk is loaded
    loaded = _load(block, words, 4 * base)
    places = [4 * (row - base) + lane for row in rows for lane in range(4)]
    return loaded if places == list(range(LANES)) else _pick(block, loaded, loaded, places)


def _sums(block, value):
    """The inclusive prefix sums within each row of four lanes: to move lanes from row to row takes longer."""
    for step in (1, 2):
        places = [LANES + lane - step if lane % 4 >= step else 0 for lane in range(LANES)]
        value = block.add(value, _pick(block, _all(0), value, places))
    return value


def _pack(module, codec):
    """A function int32 (values, words) that packs 128 values and returns the width."""
    name = f"pack_{codec}"
    if name in module.globals:
        return module.globals[name]
    function, entry = _function(module, name, ir.FunctionType(_WORD, [_POINTER, _POINTER]))
    values, words = function.args
    fields = values
    if codec != PLAIN:
        room = entry.alloca(ir.ArrayType(_WORD, 128))
        room.align = 64
        fields = entry.bitcast(room, _POINTER)
    bits = _all(0)
    for k in range(0, 128, LANES):
        field = value = _load(entry, values, k)
        if codec == LESS_ONE:
            field = entry.sub(value, _all(1))
        if codec in STEPPING:
            if k:
                previous = _load(entry, values, k - 1)
            else:
                previous = _pick(entry, value, value, [max(lane - 1, 0) for lane in range(LANES)])
            field = entry.sub(value, previous)
        if codec == ZIGZAG:
            field = entry.xor(entry.shl(field, _all(1)), entry.ashr(field, _all(31)))
        if codec != PLAIN:
            _store(entry, field, fields, k)
        bits = entry.or_(bits, field)
    used = entry.call(_library(module, "vector.reduce.or", _WORD, [_VECTOR]), [bits])
    width = entry.sub(ir.Constant(_WORD, 32), entry.ctlz(used, ir.Constant(ir.IntType(1), 0)))

    def emit(block, B):
        if B == 32:
            for k in range(0, 128, LANES):
                _store(block, _load(block, values, k), words, k)
            return
        row = _all(0, _ROW)
        for k in range(32 if B else 0):
            q, s = divmod(k * B, 32)
            field = _load(block, fields, 4 * k, _ROW)
            row = block.or_(row, block.shl(field, _all(s, _ROW)))
            if s + B >= 32:
                _store(block, row, words, 4 * q)
                row = block.lshr(field, _all(32 - s, _ROW)) if s + B > 32 else _all(0, _ROW)

    _by_width(function, entry, width, emit, lambda block: block.ret(width))
    return function


def _address(context, builder, signature, arguments, at):
    """The address of item arguments[at + 1] of the array arguments[at]."""
    array = context.make_array(signature.args[at])(context, builder, arguments[at])
    return builder.bitcast(builder.gep(array.data, [arguments[at + 1]]), _POINTER)


@intrinsic
def unpack_chunk(typing, codec, words, o, width, start, out, at):
    """Decode the chunk that begins at word o into out[at : at + 128]; the codec is the length of a tuple."""

    def emit(context, builder, signature, arguments):
        pointers = [_address(context, builder, signature, arguments, k) for k in (1, 5)]
        builder.call(_unpack(builder.module, len(codec)), [*pointers, *arguments[3:5]])
        return context.get_dummy_value()

    return types.void(codec, words, types.int64, types.uint32, types.uint32, out, types.int64), emit


@intrinsic
def pack_chunk(typing, codec, values, i, words, at):
    """Encode values[i : i + 128] into words[at:] and return the width; the codec is the length of a tuple.

    Precondition: words[at:] holds 128 words.
    """

    def emit(context, builder, signature, arguments):
        pointers = [_address(context, builder, signature, arguments, k) for k in (1, 3)]
        return builder.call(_pack(builder.module, len(codec)), pointers)

    return types.uint32(codec, values, types.int64, words, types.int64), emit
