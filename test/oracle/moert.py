#===- moert.py - libmoert for the oracles ---------------------------------------------------------===#
#
# A ctypes binding that knows the ops from the same records that their C API is generated from. Tensors are NumPy
# arrays; element types that NumPy lacks travel as arrays of their bits, tagged by `typed`:
#
#     def rank_main(rank):
#         slab = rank.symmetric(bytes)                                   # this rank's symmetric memory, a uint8 array
#         return rank.op('moe.dispatch', top_k=8, n_experts=64,          # static parameters
#                        topk_ids=ids, payloads=[typed(x, 'bf16')],      # operands
#                        recv=[typed(y, 'bf16')], workspace=slab.view(np.int8), ...)
#     offsets = run_ranks(4, rank_main, timeout_ms=5000)
#
# What is left out of a call has its default, or is NULL. A failed call raises MoertError.
#
#===----------------------------------------------------------------------------------------------===#
import ctypes
import glob
import os
import sys
import threading
from ctypes import POINTER, Structure, byref, c_char_p, c_double, c_int32, c_int64, c_size_t, c_uint8, c_uint16, c_uint64, c_void_p
from typing import NamedTuple

import numpy as np

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', '..', 'cmake'))
import generate  # noqa: E402  (the generator of the C API)

# --- structs of moert.h -------------------------------------------------------------------------------

MAX_RANKS = 64
CPU = 1
CODES = {'INT': 0, 'UINT': 1, 'FLOAT': 2, 'BFLOAT': 4, 'F8E4M3FN': 10, 'F8E5M2': 12, 'F8E8M0FNU': 14}
DTYPES = {  # name: (code, bits)
    'bf16': ('BFLOAT', 16), 'f16': ('FLOAT', 16), 'f32': ('FLOAT', 32), 'f64': ('FLOAT', 64),
    'i8': ('INT', 8), 'i16': ('INT', 16), 'i32': ('INT', 32), 'i64': ('INT', 64),
    'ui8': ('UINT', 8), 'ui16': ('UINT', 16), 'ui32': ('UINT', 32), 'ui64': ('UINT', 64),
    'f8E4M3FN': ('F8E4M3FN', 8), 'f8E5M2': ('F8E5M2', 8), 'f8E8M0FNU': ('F8E8M0FNU', 8),
}
NUMPY_NAMES = {'f': 'f', 'i': 'i', 'u': 'ui'}


class Tensor(Structure):
    _fields_ = [('data', c_void_p), ('device_type', c_int32), ('device_id', c_int32), ('ndim', c_int32),
                ('code', c_uint8), ('bits', c_uint8), ('lanes', c_uint16),
                ('shape', POINTER(c_int64)), ('strides', POINTER(c_int64)), ('byte_offset', c_uint64)]


ALLOCATE = ctypes.CFUNCTYPE(c_void_p, c_void_p, c_size_t, c_size_t)
DEALLOCATE = ctypes.CFUNCTYPE(None, c_void_p, c_void_p, c_size_t)
LOG = ctypes.CFUNCTYPE(None, c_void_p, c_char_p)


class ContextOptions(Structure):
    _fields_ = [('struct_size', c_size_t), ('stream', c_void_p), ('timeout_ms', c_int64), ('arena_limit', c_size_t),
                ('allocate', ALLOCATE), ('deallocate', DEALLOCATE), ('allocator_user', c_void_p),
                ('log', LOG), ('log_user', c_void_p), ('stop_op', c_char_p), ('stop_phase', c_char_p)]


# --- the library --------------------------------------------------------------------------------------

class MoertError(Exception):
    """A call returned something else than MOERT_OK: `status` (its number), `name`, `text` (the last error)."""

    def __init__(self, status):
        self.status = status
        self.name = library.moert_status_name(status).decode()
        self.text = library.moert_last_error().decode()
        super().__init__('%s: %s' % (self.name, self.text))


def check(status):
    if status:
        raise MoertError(status)


def load_library(path):
    loaded = ctypes.CDLL(path)
    loaded.moert_status_name.restype = loaded.moert_last_error.restype = c_char_p
    loaded.moert_status_name.argtypes = [c_int32]
    loaded.moert_comm_create_threads.argtypes = [c_int32, c_void_p, POINTER(c_void_p)]
    loaded.moert_comm_destroy.argtypes = loaded.moert_context_destroy.argtypes = [c_void_p]
    loaded.moert_comm_destroy.restype = loaded.moert_context_destroy.restype = None
    loaded.moert_comm_status.argtypes = loaded.moert_context_status.argtypes = [c_void_p]
    loaded.moert_comm_barrier.argtypes = [c_void_p, c_int64]
    loaded.moert_comm_report.argtypes = [c_void_p, c_int32]
    loaded.moert_comm_report.restype = None
    loaded.moert_symmetric_alloc.argtypes = [c_void_p, c_size_t, POINTER(c_void_p)]
    loaded.moert_symmetric_free.argtypes = [c_void_p, c_void_p]
    loaded.moert_context_create.argtypes = [c_void_p, POINTER(ContextOptions), POINTER(c_void_p)]
    return loaded


LIBRARY_PATH = os.environ.get('MOERT_LIBRARY') or (sys.argv[1] if len(sys.argv) > 1 else '')
if not LIBRARY_PATH:
    raise SystemExit('name libmoert.so in the environment variable MOERT_LIBRARY or as first argument')
library = load_library(LIBRARY_PATH)


# --- ops ----------------------------------------------------------------------------------------------

def params_struct(op):
    fields = [('struct_size', c_size_t)] + [(a.name, c_double if a.kind == 'FLOAT' else c_int64) for a in op.attributes]
    return type(op.id + '_params', (Structure,), {'_fields_': fields})


def args_struct(op):
    fields = [('struct_size', c_size_t)]
    for o in op.passed():
        if o.variadic:
            fields.append(('num_' + o.name, c_int64))
        fields.append((o.name, POINTER(Tensor) if o.buffer else c_int64))
    if op.scalar:
        fields.append((op.scalar, POINTER(Tensor if op.scalar == 'view' else c_int64)))
    return type(op.id + '_args', (Structure,), {'_fields_': fields})


class Op:
    def __init__(self, record):
        self.record = record
        self.params, self.args = params_struct(record), args_struct(record)
        self.attributes = {a.name: a for a in record.attributes}
        self.operands = {o.name: o for o in record.passed()}
        self.function = getattr(library, 'moert_' + record.id)
        self.function.argtypes = [POINTER(self.params), POINTER(self.args), c_void_p, c_void_p]


def load_ops():
    generated = os.path.join(os.environ.get('MOERT_GENERATED') or os.path.join(os.path.dirname(LIBRARY_PATH), '..', 'generated'), '*.json')
    return {record.name: Op(record) for record in generate.load(sorted(glob.glob(generated))) if record.runtime}


OPS = load_ops()


class Typed(NamedTuple):
    array: np.ndarray
    dtype: str


def typed(array, dtype):
    """`array` as an operand of element type `dtype`, a name of DTYPES of the same size."""
    assert array.itemsize * 8 == DTYPES[dtype][1], (array.dtype, dtype)
    return Typed(array, dtype)


def make_tensor(value, keep):
    """A moert_tensor of an array, a tagged array or a Tensor, which is taken as it is. What it points to is appended to `keep`."""
    if isinstance(value, Tensor):
        return value
    array, dtype = value if isinstance(value, Typed) else (value, NUMPY_NAMES[value.dtype.kind] + str(value.itemsize * 8))
    code, bits = DTYPES[dtype]
    shape = (c_int64 * array.ndim)(*array.shape)
    strides = None if array.flags.c_contiguous else (c_int64 * array.ndim)(*[s // array.itemsize for s in array.strides])
    keep += [array, shape, strides]
    return Tensor(array.ctypes.data, CPU, 0, array.ndim, CODES[code], bits, 1,
                  ctypes.cast(shape, POINTER(c_int64)), ctypes.cast(strides, POINTER(c_int64)), 0)


def fill_params(op, named):
    params = op.params(ctypes.sizeof(op.params))
    for name, attribute in op.attributes.items():
        value = named.pop(name, None)
        if value is None:
            value = float(attribute.c_default()) if attribute.kind == 'FLOAT' else int(attribute.c_default())
        setattr(params, name, attribute.cases.index(value) if isinstance(value, str) else value)
    return params


def fill_args(op, named, keep):
    args = op.args(ctypes.sizeof(op.args))
    for name, operand in op.operands.items():
        value = named.pop(name, None)
        if value is None:
            continue
        if operand.variadic:
            tensors = (Tensor * len(value))(*[make_tensor(v, keep) for v in value])
            keep.append(tensors)
            setattr(args, 'num_' + name, len(value))
            setattr(args, name, ctypes.cast(tensors, POINTER(Tensor)))
        elif operand.buffer:
            setattr(args, name, ctypes.pointer(make_tensor(value, keep)))
        else:
            setattr(args, name, int(value))
    return args


def call(context, name, **named):
    """Call an op on a moert_context *. Returns its result, if it has one: a number, or the Tensor that was passed as `view`, filled."""
    op, keep = OPS[name], []
    scalar = op.record.scalar
    params, args = fill_params(op, named), fill_args(op, named, keep)
    result = named.pop(scalar, None) or c_int64()
    if scalar:
        setattr(args, scalar, ctypes.pointer(result))
    if named:
        raise TypeError('%s has no %s' % (name, ', '.join(named)))
    check(op.function(byref(params), byref(args), None, context))
    return result.value if isinstance(result, c_int64) else result


# --- ranks --------------------------------------------------------------------------------------------

class Rank:
    """One rank: its number, the number of ranks, its communicator and a context on it. Used by one thread at a time."""

    def __init__(self, comm, rank, size, options):
        self.comm, self.rank, self.size = comm, rank, size
        self.contexts = []
        self.context = self.new_context(**options)

    def new_context(self, **options):
        """A further context, with these fields of moert_context_options."""
        fields = {k: v.encode() if isinstance(v, str) else v for k, v in options.items()}
        context = c_void_p()
        check(library.moert_context_create(self.comm, byref(ContextOptions(ctypes.sizeof(ContextOptions), **fields)), byref(context)))
        self.contexts.append(context)
        return context

    def op(self, name, **named):
        return call(self.context, name, **named)

    def symmetric(self, size):
        """`size` bytes of symmetric memory as a uint8 array, valid until `run_ranks` returns. Collective."""
        memory = c_void_p()
        check(library.moert_symmetric_alloc(self.comm, size, byref(memory)))
        return np.frombuffer((c_uint8 * size).from_address(memory.value), np.uint8)

    def symmetric_free(self, array):
        check(library.moert_symmetric_free(self.comm, array.ctypes.data))

    def barrier(self, timeout_ms=0):
        check(library.moert_comm_barrier(self.comm, timeout_ms))

    def status(self):
        """The name of the communicator's first error; "MOERT_OK" before."""
        return library.moert_status_name(library.moert_comm_status(self.comm)).decode()

    def destroy(self):
        for context in self.contexts:
            library.moert_context_destroy(context)
        library.moert_comm_destroy(self.comm)


INTERNAL = 6001


def run_ranks(size, function, catch=False, options=lambda rank: {}, **common):
    """Call function(Rank) on `size` ranks, each in its own thread, and return what they returned.

    `common` are fields of moert_context_options for all ranks, `options(rank)` those of one. An exception is raised again once all ranks have ended;
    with `catch`, MoertErrors stand among the results instead.
    """
    comms = (c_void_p * size)()
    check(library.moert_comm_create_threads(size, None, comms))
    ranks = [Rank(comms[r], r, size, {**common, **options(r)}) for r in range(size)]
    outcomes = [None] * size

    def run(rank):
        try:
            outcomes[rank.rank] = function(rank)
        except BaseException as error:  # pylint: disable=broad-except
            outcomes[rank.rank] = error
            if not isinstance(error, MoertError) or error.status < 3000:  # peers know of the others already, or must not
                library.moert_comm_report(rank.comm, INTERNAL)

    threads = [threading.Thread(target=run, args=(rank,)) for rank in ranks]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for rank in ranks:
        rank.destroy()
    failures = [o for o in outcomes if isinstance(o, BaseException) and not (catch and isinstance(o, MoertError))]
    if failures:  # a failed assertion is why peers failed, not the other way round
        raise next((f for f in failures if not isinstance(f, MoertError)), failures[0])
    return outcomes


def run_tests(names):
    """Call every test_... of a module's globals() in their order."""
    for name, test in list(names.items()):
        if name.startswith('test_'):
            test()
            print('ok', name, flush=True)


def expect_error(name, text, function, *args, **named):
    """Assert that the call fails with the status `name` and exactly this last error."""
    try:
        function(*args, **named)
    except MoertError as error:
        assert (error.name, error.text) == (name, text), '\n  got      %s\n  expected %s: %s' % (error, name, text)
        return
    raise AssertionError('no error; expected %s: %s' % (name, text))


# --- element types ------------------------------------------------------------------------------------

FORMATS = {'bf16': (8, -126, 8), 'f16': (11, -14, 5), 'f32': (24, -126, 8)}  # precision, least exponent, exponent bits


def encode(values, dtype):
    """Values as an array of `dtype` (bf16: its bits as uint16), rounded once, to nearest even."""
    values = np.asarray(values, np.float64)
    if dtype == 'f32':
        with np.errstate(over='ignore'):
            return values.astype(np.float32)
    precision, least, exponent_bits = FORMATS[dtype]
    with np.errstate(invalid='ignore', over='ignore'):
        exponent = np.maximum(np.frexp(np.where(np.isfinite(values), values, 0))[1] - 1, least)
        quantum = np.ldexp(1.0, exponent - (precision - 1))
        rounded = np.where(np.isfinite(values), np.rint(values / quantum) * quantum, values)
        rounded = np.where(np.abs(rounded) >= 2.0 ** 2 ** (exponent_bits - 1), np.copysign(np.inf, rounded), rounded)
        rounded = np.where(np.isnan(values), np.nan, rounded)
    if dtype == 'f16':
        return rounded.astype(np.float16)
    return (rounded.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)


def decode(array, dtype):
    """The values of an array of `dtype` as float64."""
    if dtype == 'bf16':
        array = (array.astype(np.uint32) << 16).view(np.float32)
    return array.astype(np.float64)
