"""Keys: coordinates packed into sortable words, scanned, partitioned and sorted.

A key is the bits of all coordinates in stored order, so that numeric order is lexicographic order and a prefix of the
key is a fiber. It takes one or two 64-bit words; of two, the first holds the upper 64 bits. `fields` says where the
dimensions lie: `right, left, mask = fields`, each a tuple by word of tuples by dimension, and

    key[word] |= ((x & mask) >> left) << right        x |= (key[word] >> right) << left & mask

A record is the words of a key and one word of payload behind them. The number of words is a constant to the compiler
because it is the length of a tuple.
"""

from .jit import i8, kernel, u4, u8


@kernel
def scan(coords, fields, sizes, result):
    """Are the entries in strictly ascending order, and is every coordinate in its range?

    result: descents, equal neighbours, a coordinate out of range. Stops behind the first block with a descent, so the
    last two speak of all entries only where there is none.
    """
    right, left, mask = fields
    one, zero = u8(1), u8(0)
    n = u8(len(coords[0]))
    words = len(right)
    i, down, same, bad = zero, zero, zero, zero
    high, low = zero, zero
    while i < n and down == zero:
        stop = min(i + u8(4096), n)
        while i < stop:
            a, b = zero, zero
            for d in range(len(coords)):
                x = u8(coords[d][i])
                bad |= ((sizes[d] - one) - x) | x
                if words == 1:
                    a |= x << right[0][d]
                else:
                    a |= ((x & mask[0][d]) >> left[0][d]) << right[0][d]
                    b |= ((x & mask[words - 1][d]) >> left[words - 1][d]) << right[words - 1][d]
            later = u8(i > zero)
            down += u8((a < high) | ((a == high) & (b < low))) & later
            same += u8((a == high) & (b == low)) & later
            high, low = a, b
            i += one
    result[0] = down
    result[1] = same
    result[2] = bad >> u8(63)


@kernel
def histogram(coords, fields, sizes, top, count):
    """Count the entries by the bits of their first word from `top` up; tells whether a coordinate is out of range."""
    right, left, mask = fields
    one, i, n, bad = u8(1), u8(0), u8(len(coords[0])), u8(0)
    inside = u8(count.size - 1)
    while i < n:
        key = u8(0)
        for d in range(len(coords)):
            x = u8(coords[d][i])
            bad |= ((sizes[d] - one) - x) | x
            if len(right) == 1:
                key |= x << right[0][d]
            else:
                key |= ((x & mask[0][d]) >> left[0][d]) << right[0][d]
        count[(key >> top) & inside] += u8(1)
        i += one
    return bad >> u8(63)


@kernel
def partition(coords, payload, fields, begin, end, top, inside, cursor, records):
    """Write entries begin … end as records, stably, into the bucket of each: cursor[bucket] is its next record.

    Precondition: coordinates in range; `payload` is None or has a word for each entry.
    """
    right, left, mask = fields
    one, i, stop = u8(1), u8(begin), u8(end)
    words = len(right)
    stride = u8(words + 1)
    while i < stop:
        key = u8(0)
        for d in range(len(coords)):
            if words == 1:
                key |= u8(coords[d][i]) << right[0][d]
            else:
                key |= ((u8(coords[d][i]) & mask[0][d]) >> left[0][d]) << right[0][d]
        bucket = (key >> top) & inside
        place = cursor[bucket]
        cursor[bucket] = place + one
        place *= stride
        records[place] = key
        if words == 2:
            low = u8(0)
            for d in range(len(coords)):
                low |= ((u8(coords[d][i]) & mask[words - 1][d]) >> left[words - 1][d]) << right[words - 1][d]
            records[place + one] = low
        if payload is not None:
            records[place + u8(words)] = payload[i]
        i += one


@kernel
def two_histograms(records, words, word, shift, digit, offsets):
    """Count two neighbouring digits of one word from bit `shift` up, and make the counts offsets in words.

    Returns the bits that vary, of each word, and how many pairs are to be expected equal in both digits.
    """
    one, zero = u8(1), u8(0)
    stride, at = u8(len(words) + 1), u8(word)
    size = u8(1) << u8(digit)
    mask = size - one
    s0, s1 = u8(shift), u8(min(shift + digit, 63))
    first, second = offsets[0], offsets[1]
    first[:] = u4(0)
    second[:] = u4(0)
    vary, vary_last = zero, zero
    start, start_last = records[0], records[len(words) - 1]
    i, end = zero, u8(records.size)
    while i < end:
        vary |= records[i] ^ start
        if len(words) == 2:
            vary_last |= records[i + one] ^ start_last
        x = records[i + at]
        first[(x >> s0) & mask] += u4(1)
        second[(x >> s1) & mask] += u4(1)
        i += stride
    t0, t1, p0, p1 = u4(0), u4(0), 0.0, 0.0
    j = zero
    while j < size:
        c0, c1 = first[j], second[j]
        p0 += float(c0) * float(c0)
        p1 += float(c1) * float(c1)
        first[j] = t0
        second[j] = t1
        t0 += c0 * u4(stride)
        t1 += c1 * u4(stride)
        j += one
    n = float(end // stride)
    return vary, vary_last, 0.5 * (p0 / n) * (p1 / n)


@kernel
def digit_pass(source, target, words, word, shift, digit, offsets):
    """One stable pass of a radix sort, on `digit` bits of one word from bit `shift` up, to the given offsets."""
    one, two, stride = u8(1), u8(2), u8(len(words) + 1)
    mask, s, at = u8((1 << digit) - 1), u8(min(shift, 63)), u8(word)
    i, end = u8(0), u8(source.size)
    while i < end:
        j = (source[i + at] >> s) & mask
        to = u8(offsets[j])
        offsets[j] = u4(to + stride)
        target[to] = source[i]
        target[to + one] = source[i + one]
        if len(words) == 2:
            target[to + two] = source[i + two]
        i += stride


@kernel
def find_ties(records, words, found):
    """Number the records whose key is not above the one before; found has a spare slot."""
    stride = u8(len(words) + 1)
    count = u8(0)
    i, j, end = stride, u4(1), u8(records.size)
    while i < end:
        tie = records[i] <= records[i - stride]
        found[count] = j
        count += u8(tie)
        i += stride
        j += u4(1)
    return count


@kernel
def repair(records, words, found, count):
    """Insert each record that find_ties found at its place, stably; returns whether keys repeat."""
    stride = len(words) + 1
    last = len(words) - 1
    equal = False
    for t in range(count):
        i = i8(found[t]) * stride
        while i < records.size:
            high, low = records[i], records[i + last]
            j = i - stride
            if not (records[j] > high or (records[j] == high and records[j + last] > low)):
                equal |= records[j] == high and records[j + last] == low
                break
            payload = records[i + stride - 1]
            while j >= 0 and (records[j] > high or (records[j] == high and records[j + last] > low)):
                for w in range(len(words) + 1):
                    records[j + stride + w] = records[j + w]
                j -= stride
            equal |= j >= 0 and records[j] == high and records[j + last] == low
            records[j + stride] = high
            records[j + stride + last] = low
            records[j + 2 * stride - 1] = payload
            i += stride
    return equal


@kernel
def sort_buckets(records, words, starts, top, low, spare, found, offsets):
    """Sort every bucket starts[b] … starts[b + 1] by its keys, stably; returns whether keys repeat.

    Two digits of the upper bits that vary, then the repair of what still ties: fewer passes than all digits take.
    Where ties are frequent all digits are sorted instead, from the lowest up. `top`: no bit of the first word from
    here up varies inside a bucket. `low`: bits of the last word that are in order already.
    """
    stride = len(words) + 1
    floor = low if len(words) == 1 else 0
    equal = False
    for b in range(starts.size - 1):
        n = starts[b + 1] - starts[b]
        if n < 2:
            continue
        bucket = records[starts[b] * stride : starts[b + 1] * stride]
        if n > 24 and top > floor:
            digit = 11 if n > 12000 else (10 if n > 2500 else 8)
            work = spare[: n * stride]
            word, shift = 0, max(floor, top - 2 * digit)
            aimed, every = False, False
            while True:
                vary, vary_last, ties = two_histograms(bucket, words, word, shift, digit, offsets)
                if not aimed:  # the bits that vary may lie lower than was thought
                    aimed = True
                    height = 0
                    while height < 64 and vary >> u8(height) != u8(0):
                        height += 1
                    better = max(floor, height - 2 * digit)
                    if better < shift - 3:
                        shift = better
                        continue
                if not every and ties > 0.03 * n:
                    every = True
                    word, shift = len(words) - 1, low
                    continue
                source, target = bucket, work
                for k in range(2):
                    digit_pass(source, target, words, word, shift + k * digit, digit, offsets[k])
                    source, target = target, source
                if not every:
                    break
                shift += 2 * digit
                rest = vary_last if word == 1 else vary
                if shift > 63 or rest >> u8(shift) == u8(0):
                    if word == 0:
                        break
                    word, shift = 0, 0
        count = find_ties(bucket, words, found)
        if count:
            equal |= repair(bucket, words, found, count)
    return equal


@kernel
def keep_one(records, words, begin, end, last):
    """Of records with equal keys keep the first, or the last, at the front of begin … end; returns the new end.

    Precondition: sorted.
    """
    stride = len(words) + 1
    tail = len(words) - 1
    kept = begin
    for i in range(begin + 1, end):
        a, b = kept * stride, i * stride
        if records[a] != records[b] or records[a + tail] != records[b + tail]:
            kept += 1
            for w in range(len(words) + 1):
                records[kept * stride + w] = records[b + w]
        elif last:
            records[a + stride - 1] = records[b + stride - 1]
    return kept + 1


@kernel
def add_up(records, words, begin, end, typed):
    """Add the payloads of equal keys in their order, at the front of begin … end; returns the new end.

    Precondition: sorted; `typed` views the memory of `records` as the values' data type, whose size divides a word.
    """
    stride = len(words) + 1
    tail = len(words) - 1
    per_word = typed.size // records.size
    kept = begin
    for i in range(begin + 1, end):
        a, b = kept * stride, i * stride
        if records[a] != records[b] or records[a + tail] != records[b + tail]:
            kept += 1
            for w in range(len(words) + 1):
                records[kept * stride + w] = records[b + w]
        else:
            at = (a + stride - 1) * per_word
            typed[at] = typed[at] + typed[(b + stride - 1) * per_word]
    return kept + 1


@kernel
def number_runs(records, words, order, starts):
    """Keep one record for each key, with its number as payload; returns how many.

    order: the payloads as they were; starts: where in it each key begins.
    Precondition: sorted, at least one record.
    """
    stride = len(words) + 1
    tail = len(words) - 1
    kept = 0
    n = records.size // (len(words) + 1)
    order[0] = records[stride - 1]
    records[stride - 1] = u8(0)
    starts[0] = 0
    for i in range(1, n):
        a, b = kept * stride, i * stride
        order[i] = records[b + stride - 1]
        if records[a] != records[b] or records[a + tail] != records[b + tail]:
            kept += 1
            starts[kept] = i
            for w in range(len(words)):
                records[kept * stride + w] = records[b + w]
            records[kept * stride + stride - 1] = u8(kept)
    return kept + 1
