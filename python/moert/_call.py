"""How _ops.py calls the functions of <moert/ops.h>: parameter and argument structs from tables, and the call."""
import ctypes
from ctypes import POINTER, Structure, byref, c_double, c_int64, c_size_t, c_void_p

from . import _abi
from ._arrays import dtype_of, part_of, tensor_of

INT, FLOAT, BOOL = 'int', 'float', 'bool'              # parameters; an enumeration is the tuple of its cases
NUMBER, TENSOR, TENSORS = 'number', 'tensor', 'tensors'  # arguments


class Op:
    def __init__(self, name, params, args, result=None):
        self.name, self.params, self.args, self.result = name, params, args, result
        fields = [('struct_size', c_size_t)] + [(param, c_double if kind is FLOAT else c_int64) for param, kind in params]
        self.params_struct = type(name + '_params', (Structure,), {'_fields_': fields})
        fields = [('struct_size', c_size_t)]
        for arg, kind in args:
            if kind is TENSORS:
                fields.append(('num_' + arg, c_int64))
            fields.append((arg, c_int64 if kind is NUMBER else POINTER(_abi.Tensor)))
        if result:
            fields.append((result, c_void_p))
        self.args_struct = type(name + '_args', (Structure,), {'_fields_': fields})
        self.function = getattr(_abi.libmoert, 'moert_' + name)
        self.function.argtypes = [POINTER(self.params_struct), POINTER(self.args_struct), c_void_p, c_void_p]
        self.function.restype = ctypes.c_int32

    def __call__(self, context, kernel, params, args, view=None):
        """`view`: shape and dtype of the result that is a view."""
        keep = []
        filled = self._args(args, keep)
        result = self._result(view, keep)
        if self.result:
            setattr(filled, self.result, ctypes.addressof(result))
        handle = kernel.handle if kernel is not None else None
        _abi.check(self.function(byref(self._params(params)), byref(filled), handle, context.current().handle))
        if view:
            return part_of(args[0], args[1], *view)
        return result.value if self.result else None

    def _params(self, values):
        filled = self.params_struct(ctypes.sizeof(self.params_struct))
        for (name, kind), value in zip(self.params, values):
            if isinstance(kind, tuple):
                if value not in kind:
                    raise ValueError('%s: %s is %r, must be %s' % (self.name, name, value, ' or '.join(repr(case) for case in kind)))
                value = kind.index(value)
            setattr(filled, name, value)
        return filled

    def _args(self, values, keep):
        filled = self.args_struct(ctypes.sizeof(self.args_struct))
        for (name, kind), value in zip(self.args, values):
            if value is None:
                continue
            if kind is NUMBER:
                setattr(filled, name, value)
            elif kind is TENSOR:
                setattr(filled, name, ctypes.pointer(tensor_of(value, keep)))
            else:
                tensors = (_abi.Tensor * len(value))(*[tensor_of(part, keep) for part in value])
                keep.append(tensors)
                setattr(filled, 'num_' + name, len(value))
                setattr(filled, name, ctypes.cast(tensors, POINTER(_abi.Tensor)))
        return filled

    def _result(self, view, keep):
        if not view:
            return c_int64()
        shape = (c_int64 * max(len(view[0]), 1))(*view[0])
        keep.append(shape)
        return _abi.Tensor(None, _abi.Device(_abi.CPU, 0), len(view[0]), dtype_of(view[1]), ctypes.cast(shape, POINTER(c_int64)), None, 0)


class Kernel:
    """A kernel that `key` names, as moert_kernel_find gives it."""

    def __init__(self, key):
        self.handle = c_void_p()
        _abi.check(_abi.libmoert.moert_kernel_find(key.encode(), byref(self.handle)))

    @property
    def name(self):
        return _abi.libmoert.moert_kernel_name(self.handle).decode()
