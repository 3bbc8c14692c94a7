"""Turn entries in any order into records sorted by key: scan, partition, sort, merge repeats.

A record is the words of a key (see `kernels.keys`), followed by one word of payload. The length of the tuple `words` is
the number of words of a key.
"""

from .jit import called, kernel, prefetch, prefetch_for_write, u4, u8
from .keys import key_at, out_of_range

AHEAD_WORDS = u8(4)  # distance of the prefetched cache line from the cursor of a bucket
READ_AHEAD_WORDS = u8(1024)  # distance of the prefetched record: processors do not predict reads beyond a page
REPAIRED_RECORDS = 24  # that `repair` alone sorts as fast
DIGIT = 11  # bits of the widest digit
MANY_TIES = 0.08  # of the records, above which sorting all digits is faster than `repair`


@kernel
def scan(coords, fields, sizes):
    """Check that the entries ascend strictly and every coordinate is in range.

    Returns the numbers of descents and of equal neighbours, and 1 if a coordinate is out of range. Stops after the
    first block with a descent; the last two results cover all entries only if there is no descent.
    Precondition: at least one entry.
    """
    one, zero = u8(1), u8(0)
    n = u8(len(coords[0]))
    down, same, i = zero, zero, one
    high, low = key_at(coords, zero, fields)
    bad = out_of_range(coords, zero, sizes)
    while i < n and down == zero:
        stop = min(i + u8(4096), n)
        while i < stop:
            a, b = key_at(coords, i, fields)
            bad |= out_of_range(coords, i, sizes)
            if len(fields[0]) == 1:
                down += u8(a < high)
                same += u8(a == high)
            else:
                down += u8((a < high) | ((a == high) & (b < low)))
                same += u8((a == high) & (b == low))
            high, low = a, b
            i += one
    return down, same, bad >> u8(63)


@kernel
def histogram(coords, fields, begin, end, top, count):
    """Count entries begin … end by the bits `top` and above of their first word."""
    one, i, n, inside = u8(1), u8(begin), u8(end), u8(count.size - 1)
    while i < n:
        high, _ = key_at(coords, i, fields)
        count[(high >> top) & inside] += one
        i += one


@kernel
def partition(coords, payload, fields, sizes, begin, end, top, cursor, records):
    """Write entries begin … end as records into their buckets, stably; cursor[bucket] is the next free word.

    Stops and returns True at the first coordinate that is out of range.
    Precondition: the cursors come from `histogram`; `payload` is None or has a word for each entry.
    """
    one, i, n = u8(1), u8(begin), u8(end)
    words = len(fields[0])
    stride = u8(words + 1)
    while i < n:
        if out_of_range(coords, i, sizes) >> u8(63):
            return True
        high, low = key_at(coords, i, fields)
        place = cursor[high >> top]
        cursor[high >> top] = place + stride
        prefetch_for_write(records, place + AHEAD_WORDS)
        records[place] = high
        if words == 2:
            records[place + one] = low
        if payload is not None:
            records[place + u8(words)] = payload[i]
        i += one
    return False


@called
def two_histograms(records, words, word, s0, s1, digit, offsets):
    """Count two digits of one word, from the bits s0 and s1 up, and turn the counts into offsets in words.

    The offsets of the second digit are after those of the first. Returns the bits that vary in each word, and the
    expected number of pairs that are equal in both digits.
    """
    one, zero = u8(1), u8(0)
    stride = u8(len(words) + 1)
    size = one << digit
    mask = size - one
    j = zero
    while j < size + size:
        offsets[j] = u4(0)
        j += one
    vary, vary_last = zero, zero
    start, start_last = records[0], records[len(words) - 1]
    i, end = zero, u8(records.size)
    while i < end:
        vary |= records[i] ^ start
        if len(words) == 2:
            vary_last |= records[i + one] ^ start_last
        x = records[i + word]
        prefetch(records, i + READ_AHEAD_WORDS)
        offsets[(x >> s0) & mask] += u4(1)
        offsets[size + ((x >> s1) & mask)] += u4(1)
        i += stride
    squares, more_squares, place, more_places, j = zero, zero, zero, zero, zero
    while j < size:
        count, more = u8(offsets[j]), u8(offsets[size + j])
        squares += count * count
        more_squares += more * more
        offsets[j], offsets[size + j] = place, more_places
        place += count * stride
        more_places += more * stride
        j += one
    n = float(end // stride)
    return vary, vary_last, 0.5 * (float(squares) / n) * (float(more_squares) / n)


@called
def digit_pass(source, target, words, word, shift, digit, offsets, begin):
    """One stable pass of a radix sort by `digit` bits of one word, from bit `shift` up, to offsets[begin:]."""
    one, two, stride = u8(1), u8(2), u8(len(words) + 1)
    mask = (one << digit) - one
    i, end = u8(0), u8(source.size)
    while i < end:
        j = begin + ((source[i + word] >> shift) & mask)
        to = u8(offsets[j])
        offsets[j] = to + stride
        prefetch_for_write(target, to + AHEAD_WORDS)
        target[to] = source[i]
        target[to + one] = source[i + one]
        if len(words) == 2:
            target[to + two] = source[i + two]
        i += stride


@kernel
def sort_buckets(records, words, starts, top, low, spare, target, offsets):
    """Sort the records of every bucket starts[b] … starts[b + 1] stably into `target`; `repair` completes the order.

    Two digits of the highest bits that vary are sorted, and `repair` sorts the records that tie. This takes fewer
    passes than all digits. If ties are frequent, all digits are sorted, from the lowest up. Returns True if all records
    are in order. top: no bit of the first word at or above it varies inside a bucket. low: the number of bits of the
    last word that are in order already.
    Precondition: `target` does not overlap the records.
    """
    stride = len(words) + 1
    floor = low if len(words) == 1 else 0
    sorted_all = True
    for b in range(starts.size - 1):
        n = starts[b + 1] - starts[b]
        bucket = records[starts[b] * stride : starts[b + 1] * stride]
        out = target[(starts[b] - starts[0]) * stride : (starts[b + 1] - starts[0]) * stride]
        in_order = len(words) == 1 and top <= floor
        if n <= REPAIRED_RECORDS or in_order:
            sorted_all &= in_order or n < 2
            i = u8(0)
            while i < u8(bucket.size):
                out[i] = bucket[i]
                i += u8(1)
            continue
        work, source, passes = spare[: n * stride], bucket, 2
        # A narrower digit keeps more of the output streams in L1; a few percent of the records tie.
        digit = 10 if n > 40_000 else (9 if n > 10_000 else 8)
        if len(words) == 1 and top - floor <= DIGIT:
            passes, digit = 1, top - floor
        word, shift, height, every = 0, max(floor, top - 2 * digit), 0, False
        while True:
            second = min(shift + digit, 63) if passes == 2 else shift
            vary, vary_last, ties = two_histograms(source, words, u8(word), u8(shift), u8(second), u8(digit), offsets)
            if height == 0:  # the bits that vary may be lower than expected
                height = 1
                while height < 64 and vary >> u8(height) != u8(0):
                    height += 1
                better = max(floor, height - 2 * digit)
                if better < shift - 3:
                    shift = better
                    continue
            if not every and ties > MANY_TIES * n and (len(words) == 2 or shift > floor):
                every = True
                word, shift, digit = len(words) - 1, low, DIGIT
                if len(words) == 1:  # no wider than necessary for pairs of passes
                    pairs = (max(height - low, 1) + 21) // 22
                    digit = (max(height - low, 1) + 2 * pairs - 1) // (2 * pairs)
                continue
            for k in range(passes):
                to = work if k + 1 < passes else out
                digit_pass(source, to, words, u8(word), u8(second if k else shift), u8(digit), offsets, u8(k << digit))
                source = to
            if not every:
                sorted_all &= len(words) == 1 and shift == floor
                break
            shift += 2 * digit
            rest = vary_last if word == 1 else vary
            if shift > 63 or rest >> u8(shift) == u8(0):
                if word == 0:
                    break
                word, shift = 0, 0
    return sorted_all


@kernel
def repair(records, words):
    """Sort by insertion, stably. Returns True if some keys are equal.

    Precondition: few records are out of order, and each is close to its place.
    """
    one, stride, tail = u8(1), u8(len(words) + 1), u8(len(words) - 1)
    equal = False
    i, end = stride, u8(records.size)
    while i < end:
        high, low = records[i], records[i + tail]
        before, before_low = records[i - stride], records[i - stride + tail]
        equal |= (high == before) & (low == before_low)
        if high < before or (len(words) == 2 and high == before and low < before_low):
            payload = records[i + tail + one]
            j = i
            while before > high or (before == high and before_low > low):
                for w in range(stride):
                    records[j + w] = records[j - stride + w]
                j -= stride
                if j == 0:
                    break
                before, before_low = records[j - stride], records[j - stride + tail]
            equal |= before == high and before_low == low
            records[j], records[j + tail] = high, low
            records[j + tail + one] = payload
        i += stride
    return equal


@kernel
def join_equal(records, typed, last, words, count):
    """Keep one record for each key, moved to the front, with the first payload or the last; return their number.

    Each record is written at the position of its key, which advances only if the key changes, without a branch.
    typed: None, or, to sum payloads, a view of the records in their data type, whose size divides a word.
    Precondition: the records are sorted, and there is at least one.
    """
    one, stride, tail = u8(1), u8(len(words) + 1), u8(len(words) - 1)
    at, i, end = u8(0), stride, u8(count) * stride
    high, low, payload = records[0], records[tail], records[tail + one]
    if typed is not None:
        per_word = u8(typed.size // records.size)
        total = typed[(tail + one) * per_word]
    while i < end:
        a, b = records[i], records[i + tail]
        new = (a ^ high) | (b ^ low) != u8(0)
        high, low = a, b
        at += stride * u8(new)
        records[at], records[at + tail] = a, b
        if typed is None:
            payload = records[i + tail + one] if new | last else payload
            records[at + tail + one] = payload
        else:
            value = typed[(i + tail + one) * per_word]
            total = value if new else total + value
            typed[(at + tail + one) * per_word] = total
        i += stride
    return at // stride + one
