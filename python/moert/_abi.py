"""moert.h in ctypes: the library, found and loaded, its structs, its errors."""
import ctypes
import os
from ctypes import CFUNCTYPE, POINTER, Structure, c_char_p, c_int, c_int32, c_int64, c_size_t, c_uint8, c_uint16, c_uint64, c_void_p

ABI_VERSION = 2
CPU, CUDA = 1, 2
MAX_RANKS = 64


class Device(Structure):
    _fields_ = [('type', c_int32), ('id', c_int32)]


class Dtype(Structure):
    _fields_ = [('code', c_uint8), ('bits', c_uint8), ('lanes', c_uint16)]


class Tensor(Structure):
    """moert_tensor, which is DLTensor."""
    _fields_ = [('data', c_void_p), ('device', Device), ('ndim', c_int32), ('dtype', Dtype), ('shape', POINTER(c_int64)),
                ('strides', POINTER(c_int64)), ('byte_offset', c_uint64)]


ALLGATHER = CFUNCTYPE(c_int, c_void_p, c_void_p, c_size_t, c_void_p)
ALLOCATE = CFUNCTYPE(c_void_p, c_void_p, c_size_t, c_size_t)
DEALLOCATE = CFUNCTYPE(None, c_void_p, c_void_p, c_size_t)
LOG = CFUNCTYPE(None, c_void_p, c_char_p)


class CommOptions(Structure):
    _fields_ = [('struct_size', c_size_t), ('device_type', c_int32), ('num_devices', c_int32), ('devices', POINTER(c_int32))]


class ContextOptions(Structure):
    _fields_ = [('struct_size', c_size_t), ('stream', c_void_p), ('timeout_ms', c_int64), ('arena_limit', c_size_t), ('allocate', ALLOCATE),
                ('deallocate', DEALLOCATE), ('allocator_user', c_void_p), ('log', LOG), ('log_user', c_void_p), ('stop_op', c_char_p),
                ('stop_phase', c_char_p)]


FUNCTIONS = {  # name: (result, arguments); a status unless it says otherwise
    'moert_status_name': (c_char_p, [c_int32]),
    'moert_last_error': (c_char_p, []),
    'moert_version': (c_char_p, []),
    'moert_abi_version': (c_int64, []),
    'moert_comm_create_threads': (c_int32, [c_int32, POINTER(CommOptions), POINTER(c_void_p)]),
    'moert_comm_create_process': (c_int32, [c_int32, c_int32, POINTER(CommOptions), ALLGATHER, c_void_p, POINTER(c_void_p)]),
    'moert_comm_destroy': (None, [c_void_p]),
    'moert_comm_rank': (c_int32, [c_void_p]),
    'moert_comm_size': (c_int32, [c_void_p]),
    'moert_comm_barrier': (c_int32, [c_void_p, c_int64]),
    'moert_comm_report': (None, [c_void_p, c_int32]),
    'moert_comm_recover': (c_int32, [c_void_p, c_uint64, c_int64]),
    'moert_comm_mask': (c_uint64, [c_void_p]),
    'moert_comm_device': (Device, [c_void_p]),
    'moert_comm_check': (c_int32, [c_void_p]),
    'moert_comm_dump': (None, [c_void_p, LOG, c_void_p]),
    'moert_symmetric_alloc': (c_int32, [c_void_p, c_size_t, POINTER(c_void_p)]),
    'moert_symmetric_free': (c_int32, [c_void_p, c_void_p]),
    'moert_context_create': (c_int32, [c_void_p, POINTER(ContextOptions), POINTER(c_void_p)]),
    'moert_context_destroy': (None, [c_void_p]),
    'moert_context_synchronize': (c_int32, [c_void_p]),
    'moert_context_stream': (c_void_p, [c_void_p]),
    'moert_kernel_find': (c_int32, [c_char_p, POINTER(c_void_p)]),
    'moert_kernel_name': (c_char_p, [c_void_p]),
}


def _path():
    """MOERT_LIBRARY; else the library of the installation that this package lies in; else what the dynamic linker finds."""
    if 'MOERT_LIBRARY' in os.environ:
        return os.environ['MOERT_LIBRARY']
    installed = os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', '..', 'lib', 'libmoert.so.0')
    return installed if os.path.exists(installed) else 'libmoert.so.0'


def _load():
    loaded = ctypes.CDLL(_path())
    for name, (result, arguments) in FUNCTIONS.items():
        function = getattr(loaded, name, None)
        if function is None:
            raise ImportError('%s has no function %s: this package is for version %d of the run side' % (_path(), name, ABI_VERSION))
        function.restype, function.argtypes = result, arguments
    if loaded.moert_abi_version() != ABI_VERSION:
        raise ImportError('%s is version %d of the run side, this package is for version %d' % (_path(), loaded.moert_abi_version(), ABI_VERSION))
    return loaded


libmoert = _load()


class Error(Exception):
    """A call failed. `name`: "MOERT_ERROR_CAPACITY"; `status`: its number; `text`: which argument, value and bound."""

    def __init__(self, status):
        self.status = status
        self.name = libmoert.moert_status_name(status).decode()
        self.text = libmoert.moert_last_error().decode()
        super().__init__('%s: %s' % (self.name, self.text))


def check(status):
    if status:
        raise Error(status)
