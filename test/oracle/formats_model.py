#===- formats_model.py - what moe.quantize and moe.dequantize have to give, in Python -------------===#
#
# From the contract of the ops (ops/moe/moe.td). The formats are tables, made from what sign, exponent and mantissa mean; to round to one is to search
# it. The formulas of the scales stand here once, and are evaluated in either of two arithmetics: `Exact`, where a step is a fraction that is rounded
# once, and `Arrays`, NumPy's f32, which is fast enough for all cases. quantize.py shows that the two agree.
#
#===----------------------------------------------------------------------------------------------===#
import bisect
import math
from fractions import Fraction
from typing import NamedTuple, Optional

import numpy as np

# --- tables -------------------------------------------------------------------------------------------


class Codes(NamedTuple):
    """A number format. Codes below `sign` stand for `magnitudes`, in ascending order; with the bit `sign` they are negative."""
    name: str
    magnitudes: tuple
    sign: int  # 0: there are no negative numbers
    nan: int  # what NaN becomes
    has_nan: bool  # whether that code stands for NaN


def small_float(exponent_bits, mantissa_bits, bias):
    """All magnitudes, as if none stood for infinity or NaN; exponent 0 is that of the subnormals."""
    steps = 1 << mantissa_bits
    return tuple((Fraction(bool(e)) + Fraction(f, steps)) * Fraction(2) ** (max(e, 1) - bias)
                 for e in range(1 << exponent_bits) for f in range(steps))


E2M1 = Codes('e2m1', tuple(map(Fraction, ('0', '1/2', '1', '3/2', '2', '3', '4', '6'))), 8, 7, False)
E4M3 = Codes('e4m3', small_float(4, 3, 7)[:-1], 0x80, 0x7f, True)
E8M0 = Codes('e8m0', tuple(Fraction(2) ** (code - 127) for code in range(255)), 0, 255, True)

F32_MAX = float(np.finfo(np.float32).max)


class Format(NamedTuple):
    block: int  # elements that share a scale; 0: those of a row; -1: all
    elements: Codes
    scales: Optional[Codes]  # None: f32
    layouts: tuple

    @property
    def packed(self):
        return self.elements is E2M1


SWIZZLED = ('linear', '128x4', '8x4')
FORMATS = {
    'nvfp4': Format(16, E2M1, E4M3, SWIZZLED),
    'mxfp4': Format(32, E2M1, E8M0, SWIZZLED),
    'mxfp8': Format(32, E4M3, E8M0, SWIZZLED),
    'fp8_block': Format(128, E4M3, None, ('linear', 'transposed')),
    'fp8_token': Format(0, E4M3, None, ('linear',)),
    'fp8_tensor': Format(-1, E4M3, None, ('linear',)),
}


class Rule(NamedTuple):
    """The parameters of the ops that change numbers, and the global scale, an f32."""
    format: str
    global_scale: Optional[float] = None
    even: bool = False
    fast: bool = False

    @property
    def numbers(self):
        return FORMATS[self.format]

    @property
    def scaled(self):
        """Whether there are scales."""
        return self.format != 'fp8_tensor' or self.global_scale is None

    def encoder(self):
        """The factor G of the encoder."""
        return 1.0 if self.global_scale is None else float(self.global_scale)


# --- arithmetic in fractions -----------------------------------------------------------------------------

def floor_log2(exact):
    """The greatest n with 2**n <= exact, which is positive."""
    n = exact.numerator.bit_length() - exact.denominator.bit_length()
    return n if Fraction(2) ** n <= exact else n - 1


def round_to(exact, precision, least):
    """To so many significant bits, ties to even, but to no finer unit than that of 2**least."""
    if exact == 0:
        return exact
    unit = Fraction(2) ** (max(floor_log2(abs(exact)), least) - (precision - 1))
    return round(exact / unit) * unit


def f32(exact, negative):
    """The f32 next to a fraction, as a float; `negative` is the sign of a zero."""
    rounded = abs(round_to(exact, 24, -126))
    return math.copysign(math.inf if rounded >= 2**128 else float(rounded), -1 if negative else 1)


def have_other_signs(a, b):
    return (math.copysign(1, a) < 0) != (math.copysign(1, b) < 0)


class Exact:
    """Of single f32 numbers, which Python's floats hold."""

    number = float

    @staticmethod
    def times(a, b):
        negative = have_other_signs(a, b)
        if math.isnan(a) or math.isnan(b) or (math.isinf(a) and b == 0) or (a == 0 and math.isinf(b)):
            return math.nan
        if math.isinf(a) or math.isinf(b):
            return -math.inf if negative else math.inf
        return f32(Fraction(a) * Fraction(b), negative)

    @staticmethod
    def divide(a, b):
        negative = have_other_signs(a, b)
        if math.isnan(a) or math.isnan(b) or (math.isinf(a) and math.isinf(b)) or (a == 0 and b == 0):
            return math.nan
        if math.isinf(a) or b == 0:
            return -math.inf if negative else math.inf
        return f32(Fraction(0) if math.isinf(b) else Fraction(a) / Fraction(b), negative)

    @staticmethod
    def encode(codes, x):
        """To nearest, ties to the even code, saturating."""
        if math.isnan(x):
            return codes.nan
        code = len(codes.magnitudes) - 1
        if not math.isinf(x):
            wanted = abs(Fraction(x))
            above = min(bisect.bisect_left(codes.magnitudes, wanted), code)
            below = max(above - 1, 0)
            code = min((below, above), key=lambda c: (abs(wanted - codes.magnitudes[c]), c % 2))
        return code | (codes.sign if math.copysign(1, x) < 0 else 0)

    @staticmethod
    def decode(codes, code):
        if code == codes.nan and codes.has_nan:
            return math.nan
        magnitude = code & ~codes.sign
        if magnitude >= len(codes.magnitudes):  # NaN of the other sign
            return math.nan
        return math.copysign(float(codes.magnitudes[magnitude]), -1 if code & codes.sign else 1)

    @staticmethod
    def power_up(x, divisor):
        """The E8M0 code of the least power of two that is no smaller than x / divisor."""
        return E8M0.nan if math.isnan(x) else bisect.bisect_left(E8M0.magnitudes, Fraction(x) / Fraction(divisor))

    @staticmethod
    def power_below(x, precision, divisor):
        """The E8M0 code of the power of two below x, rounded to `precision` bits, over `divisor`. Infinity counts as 2**128."""
        if math.isnan(x):
            return E8M0.nan
        if x == 0:
            return 0
        power = 128 if math.isinf(x) else floor_log2(round_to(Fraction(x), precision, -10**6))
        return min(max(power - floor_log2(Fraction(divisor)) + 127, 0), 254)

    @staticmethod
    def choose(condition, a, b):
        return a if condition else b

    @staticmethod
    def at_most(x, bound):
        return bound if x > bound else x  # NaN stays

    @staticmethod
    def magnitude(x):
        return abs(x)


# --- arithmetic in arrays ----------------------------------------------------------------------------------

def numbers_of(codes, count):
    """What each of `count` codes stands for, as f32."""
    return np.array([Exact.decode(codes, code) for code in range(count)], np.float32)


DECODED = {codes.name: numbers_of(codes, count) for codes, count in ((E2M1, 16), (E4M3, 256), (E8M0, 256))}
MIDDLES = {codes.name: np.array([float((a + b) / 2) for a, b in zip(codes.magnitudes, codes.magnitudes[1:])], np.float32) for codes in (E2M1, E4M3)}
POWERS = numbers_of(E8M0, 255)


class Arrays:
    """Of NumPy arrays of f32."""

    number = np.float32

    @staticmethod
    def times(a, b):
        return np.asarray(a, np.float32) * np.asarray(b, np.float32)

    @staticmethod
    def divide(a, b):
        return np.asarray(a, np.float32) / np.asarray(b, np.float32)

    @staticmethod
    def encode(codes, x):
        middles, magnitude = MIDDLES[codes.name], np.abs(x)
        code = np.searchsorted(middles, magnitude)  # of a middle, the lower of its two
        in_the_middle = middles[np.minimum(code, len(middles) - 1)] == magnitude
        code = (code + (in_the_middle & (code % 2 == 1))).astype(np.uint8)
        return np.where(np.isnan(x), np.uint8(codes.nan), code | np.signbit(x) * np.uint8(codes.sign))

    @staticmethod
    def decode(codes, code):
        return DECODED[codes.name][code]

    @staticmethod
    def power_up(x, divisor):
        quotient = np.asarray(x, np.float64) / divisor  # no quotient of f32 is so near to a power of two that the rounding would move it there
        return np.where(np.isnan(x), E8M0.nan, np.searchsorted(POWERS, quotient)).astype(np.uint8)

    @staticmethod
    def power_below(x, precision, divisor):
        significand, exponent = np.frexp(np.where(np.isfinite(x), x, 1).astype(np.float64))
        carry = np.rint(significand * 2.0**precision) == 2.0**precision
        power = np.where(np.isinf(x), 128, exponent - 1 + carry) - int(math.log2(divisor)) + 127
        return np.where(np.isnan(x), E8M0.nan, np.where(x == 0, 0, np.clip(power, 0, 254))).astype(np.uint8)

    @staticmethod
    def choose(condition, a, b):
        return np.where(condition, np.asarray(a, np.float32), np.asarray(b, np.float32))

    @staticmethod
    def at_most(x, bound):
        return np.minimum(x, np.float32(bound))

    @staticmethod
    def magnitude(x):
        return np.abs(x)


# --- the formulas ------------------------------------------------------------------------------------------

LEAST_AMAX = f32(Fraction(1, 10000), False)


def reciprocal(maths, x):
    """That of `fast_reciprocal` where it is rounded correctly: subnormals on either side are 0 of their sign."""
    flush = lambda y: maths.choose(maths.magnitude(y) < 2.0**-126, maths.times(y, 0.0), y)
    return flush(maths.divide(1.0, flush(x)))


def nvfp4_scale(maths, rule, amax):
    """The code, and what elements are multiplied by."""
    g = maths.number(rule.encoder())
    if rule.fast:
        code = maths.encode(E4M3, maths.times(g, maths.times(amax, reciprocal(maths, maths.number(6.0)))))
        factor = reciprocal(maths, maths.times(maths.decode(E4M3, code), reciprocal(maths, g)))
    else:
        code = maths.encode(E4M3, maths.times(g, maths.divide(amax, 6.0)))
        factor = maths.at_most(maths.divide(1.0, maths.times(maths.decode(E4M3, code), maths.divide(1.0, g))), F32_MAX)
    return code, maths.choose(amax == 0, 0.0, factor)


def mx_scale(maths, rule, amax):
    largest = float(rule.numbers.elements.magnitudes[-1])
    if not rule.even:
        return maths.power_up(maths.at_most(amax, F32_MAX), largest)
    return maths.power_below(amax, 2, 4) if rule.format == 'mxfp4' else maths.power_below(amax, 4, 256)


def fp8_scale(maths, amax):
    finite = maths.at_most(amax, F32_MAX)
    return maths.divide(maths.choose(finite < LEAST_AMAX, LEAST_AMAX, finite), 448.0)


def encode_block(maths, rule, amax, x):
    """Scale and codes of elements x of a block whose largest magnitude is amax."""
    if rule.format == 'nvfp4':
        scale, factor = nvfp4_scale(maths, rule, amax)
        return scale, maths.encode(E2M1, maths.times(x, factor))
    if rule.numbers.scales is E8M0:
        scale = mx_scale(maths, rule, amax)
        return scale, maths.encode(rule.numbers.elements, maths.divide(x, maths.decode(E8M0, scale)))
    if not rule.scaled:
        return None, maths.encode(E4M3, maths.times(x, rule.encoder()))
    scale = fp8_scale(maths, amax)
    return scale, maths.encode(E4M3, maths.divide(x, scale))


def decode_factor(maths, rule, scale):
    """What a code of a block is multiplied by."""
    if rule.format == 'nvfp4':
        return maths.times(maths.decode(E4M3, scale), maths.divide(1.0, rule.encoder()))
    if not rule.scaled:
        return maths.divide(1.0, rule.encoder())
    return maths.decode(E8M0, scale) if rule.numbers.scales is E8M0 else scale


# --- tensors -------------------------------------------------------------------------------------------------

def quantize_exactly(rule, values):
    """The scale and the codes of one block, a list of f32 values."""
    counted = [abs(x) for x in values if rule.numbers.packed or not math.isnan(x)]
    amax = math.nan if any(map(math.isnan, counted)) else max(counted, default=0.0)
    coded = [encode_block(Exact, rule, amax, x) for x in values]
    return coded[0][0], [code for _, code in coded]


def dequantize_exactly(rule, scale, codes):
    """The f32 values of one block."""
    factor = decode_factor(Exact, rule, scale)
    return [Exact.times(Exact.decode(rule.numbers.elements, code), factor) for code in codes]


def block_of(rule, hidden):
    return rule.numbers.block if rule.numbers.block > 0 else max(hidden, 1)


def columns_of(rule, hidden):
    """Scales of a row."""
    return 1 if rule.numbers.block <= 0 else -(-hidden // rule.numbers.block)


def to_blocks(rule, x):
    """[T, C, block] of [T, H]; a last block that is narrower is filled with zeros, which change nothing."""
    tokens, hidden = x.shape
    block, columns = block_of(rule, hidden), columns_of(rule, hidden)
    padded = np.zeros((tokens, columns * block), x.dtype)
    padded[:, :hidden] = x
    return padded.reshape(tokens, columns, block)


def from_blocks(blocks, hidden):
    return np.ascontiguousarray(blocks.reshape(len(blocks), blocks.shape[1] * blocks.shape[2])[:, :hidden])


def quantize(rule, x):
    """Codes [T, H], one each, and scales [T, C] (of fp8_tensor [1, 1] or None) of f32 values [T, H]."""
    blocks = to_blocks(rule, np.asarray(x, np.float32))
    magnitudes = np.abs(blocks)
    if not rule.numbers.packed:
        magnitudes = np.where(np.isnan(magnitudes), np.float32(0), magnitudes)
    axes = None if rule.numbers.block < 0 else 2
    with np.errstate(all='ignore'):
        scales, codes = encode_block(Arrays, rule, magnitudes.max(axis=axes, keepdims=True, initial=0), blocks)
    return from_blocks(codes, x.shape[1]), None if scales is None else scales[..., 0]


def dequantize(rule, codes, scales):
    """The f32 values [T, H]; the inverse map."""
    with np.errstate(all='ignore'):
        factors = decode_factor(Arrays, rule, None if scales is None else scales[..., None])
        return from_blocks(Arrays.times(Arrays.decode(rule.numbers.elements, to_blocks(rule, codes)), factors), codes.shape[1])


# --- places ------------------------------------------------------------------------------------------------

# Of eight codes: which ones the low and the high halves of the four bytes have.
HALVES = {'low_first': ([0, 2, 4, 6], [1, 3, 5, 7]), 'mega': ([4, 5, 6, 7], [0, 1, 2, 3])}


def pack(codes, packing):
    """Bytes [T, H / 2] of codes [T, H]."""
    low, high = HALVES[packing]
    eights = codes.reshape(len(codes), codes.shape[1] // 8, 8)
    return (eights[..., low] | eights[..., high] << 4).reshape(len(codes), codes.shape[1] // 2)


def buffer_shape(layout, rows, columns, more=0):
    """That of the buffer of scales [rows, columns]; `more` are columns of a transposed one beyond the rows."""
    up = lambda count, unit: -(-count // unit) * unit
    return {'linear': (rows, columns), '128x4': (up(rows, 128), up(columns, 4)), '8x4': (up(rows, 8), up(columns, 4)),
            'transposed': (columns, rows + more)}[layout]


def places(layout, rows, columns, more=0):
    """The offset of each scale [rows, columns] in the buffer."""
    m, c = np.indices((rows, columns))
    tiles = -(-columns // 4)
    if layout == '128x4':
        return (m // 128 * tiles + c // 4) * 512 + m % 32 * 16 + m % 128 // 32 * 4 + c % 4
    if layout == '8x4':
        return (m // 8 * tiles + c // 4) * 32 + m % 8 * 4 + c % 4
    return c * (rows + more) + m if layout == 'transposed' else m * columns + c


def lay_out(scales, layout, more=0, padding=0):
    """The buffer of scales [rows, columns], its other bytes `padding`."""
    shape = buffer_shape(layout, *scales.shape, more)
    buffer = np.frombuffer(bytes([padding]) * (shape[0] * shape[1] * scales.itemsize), scales.dtype).copy()
    buffer[places(layout, *scales.shape, more)] = scales
    return buffer.reshape(shape)
