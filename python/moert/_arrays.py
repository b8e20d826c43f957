"""Arrays of other libraries as moert_tensor, and memory of libmoert as theirs: NumPy, torch, and whatever else has __dlpack__."""
import ctypes
import sys
from ctypes import POINTER, Structure, c_int64, c_void_p

from . import _abi

CODES = {'int': 0, 'uint': 1, 'float': 2, 'bfloat': 4, 'bool': 6, 'float8_e4m3fn': 10, 'float8_e5m2': 12, 'float8_e8m0fnu': 14}
DTYPES = {  # as torch and ml_dtypes call them, and as graphs do: (code, bits)
    'float64': ('float', 64), 'float32': ('float', 32), 'float16': ('float', 16), 'bfloat16': ('bfloat', 16),
    'int64': ('int', 64), 'int32': ('int', 32), 'int16': ('int', 16), 'int8': ('int', 8),
    'uint64': ('uint', 64), 'uint32': ('uint', 32), 'uint16': ('uint', 16), 'uint8': ('uint', 8), 'bool': ('bool', 8),
    'float8_e4m3fn': ('float8_e4m3fn', 8), 'float8_e5m2': ('float8_e5m2', 8), 'float8_e8m0fnu': ('float8_e8m0fnu', 8),
}
SHORT = {'f64': 'float64', 'f32': 'float32', 'f16': 'float16', 'bf16': 'bfloat16', 'i64': 'int64', 'i32': 'int32', 'i16': 'int16', 'i8': 'int8',
         'ui64': 'uint64', 'ui32': 'uint32', 'ui16': 'uint16', 'ui8': 'uint8', 'f8E4M3FN': 'float8_e4m3fn', 'f8E5M2': 'float8_e5m2',
         'f8E8M0FNU': 'float8_e8m0fnu'}


def dtype_of(dtype):
    """moert_dtype of a name, a NumPy type or a torch type."""
    name = dtype if isinstance(dtype, str) else getattr(dtype, 'name', None) or str(dtype)
    name = name.rpartition('.')[2]  # "torch.bfloat16"
    name = SHORT.get(name, name)
    if name not in DTYPES:
        raise TypeError('element type %s is not one that libmoert knows: %s' % (dtype, ', '.join(DTYPES)))
    code, bits = DTYPES[name]
    return _abi.Dtype(CODES[code], bits, 1)


class Typed:
    """An array whose element type NumPy does not have: its bits in integers of the same size, and the type's name, such as 'bf16'."""

    def __init__(self, array, dtype):
        self.array, self.dtype = array, dtype_of(dtype)
        if array.itemsize * 8 != self.dtype.bits:
            raise TypeError('elements of %s have %d bits, those of the array %d' % (dtype, self.dtype.bits, 8 * array.itemsize))


# --- to moert_tensor ------------------------------------------------------------------------------------

def _tensor(data, device, dtype, shape, strides, keep):
    dimensions = (c_int64 * max(len(shape), 1))(*shape)
    steps = (c_int64 * max(len(shape), 1))(*strides) if strides is not None else None
    keep += [dimensions, steps]
    return _abi.Tensor(data, device, len(shape), dtype, ctypes.cast(dimensions, POINTER(c_int64)), ctypes.cast(steps, POINTER(c_int64)), 0)


def _of_torch(value, keep):
    kind = value.device.type
    device = _abi.Device(_abi.CUDA, value.device.index) if kind == 'cuda' else _abi.Device(_abi.CPU, 0)
    if kind not in ('cpu', 'cuda'):
        raise TypeError('the tensor is on device %s; libmoert has cpu and cuda' % value.device)
    return _tensor(value.data_ptr(), device, dtype_of(value.dtype), value.shape, value.stride(), keep)


def _strides_of(array):
    """Of a NumPy array, in elements; None if it is contiguous."""
    if array.flags.c_contiguous:
        return None
    for axis, (size, step) in enumerate(zip(array.shape, array.strides)):
        if size > 1 and step % array.itemsize:
            raise ValueError('dimension %d of the array steps by %d bytes, must step by a multiple of the %d bytes of an element: copy the array'
                             % (axis, step, array.itemsize))
    return [step // array.itemsize for step in array.strides]


def _of_numpy(array, dtype, keep):
    strides = _strides_of(array)
    return _tensor(array.ctypes.data, _abi.Device(_abi.CPU, 0), dtype, array.shape, strides, keep)


class _Managed(Structure):
    """DLManagedTensor."""
    _fields_ = [('tensor', _abi.Tensor), ('manager', c_void_p), ('deleter', c_void_p)]


_pointer_of_capsule = ctypes.pythonapi.PyCapsule_GetPointer
_pointer_of_capsule.restype, _pointer_of_capsule.argtypes = c_void_p, [ctypes.py_object, ctypes.c_char_p]


def _of_dlpack(value, keep):
    capsule = value.__dlpack__()  # it owns the tensor, and deletes it if nobody takes it
    keep.append(capsule)
    return _Managed.from_address(_pointer_of_capsule(capsule, b'dltensor')).tensor


def tensor_of(value, keep):
    """A moert_tensor; what it points to is appended to `keep`."""
    keep.append(value)
    if isinstance(value, Typed):
        return _of_numpy(value.array, value.dtype, keep)
    torch = sys.modules.get('torch')
    if torch is not None and isinstance(value, torch.Tensor):
        return _of_torch(value, keep)
    if hasattr(value, '__array_interface__'):
        return _of_numpy(value, dtype_of(value.dtype), keep)
    if hasattr(value, '__dlpack__'):
        return _of_dlpack(value, keep)
    raise TypeError('%s is no array: a torch tensor, a NumPy array or an object with __dlpack__ is needed' % type(value).__name__)


# --- from memory of libmoert ----------------------------------------------------------------------------

class _DeviceBytes:
    """Device memory for those who know __cuda_array_interface__."""

    def __init__(self, address, size, owner):
        self.owner = owner  # lives as long as arrays of this
        self.__cuda_array_interface__ = {'shape': (size,), 'typestr': '|i1', 'data': (address, False), 'version': 3, 'strides': None}


def bytes_as_array(address, size, device, owner):
    """`size` bytes as an array of i8: a NumPy array, or on CUDA a torch tensor."""
    if device.type == _abi.CUDA:
        import torch  # pylint: disable=import-outside-toplevel
        return torch.as_tensor(_DeviceBytes(address, size, owner), device='cuda:%d' % device.id)
    import numpy  # pylint: disable=import-outside-toplevel
    memory = (ctypes.c_int8 * size).from_address(address)
    memory.owner = owner
    return numpy.frombuffer(memory, numpy.int8)


def part_of(array, offset, shape, dtype):
    """Elements of a library's type at `offset` of an array of bytes. NumPy gets the bits of types that it does not have."""
    wanted = dtype_of(dtype)
    count = 1
    for size in shape:
        count *= size
    part = array[offset:offset + count * wanted.bits // 8]
    name = next(name for name, (code, bits) in DTYPES.items() if (CODES[code], bits) == (wanted.code, wanted.bits))
    torch = sys.modules.get('torch')
    if torch is not None and isinstance(part, torch.Tensor):
        return part.view(getattr(torch, name)).view(*shape)
    import numpy  # pylint: disable=import-outside-toplevel
    return part.view(getattr(numpy, name, 'uint%d' % wanted.bits)).reshape(shape)
