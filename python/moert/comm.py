"""Communicators, whose ranks are threads or processes; contexts, which follow torch's streams."""
import ctypes
import sys
import threading
from ctypes import byref, c_int32, c_void_p

from . import _abi
from ._arrays import bytes_as_array

_LEGACY_STREAM = 1  # cudaStreamLegacy: what torch calls stream 0, as a handle that is not NULL


def _options(device, devices):
    """moert_comm_options; `device` is 'cpu' or 'cuda'."""
    if device not in ('cpu', 'cuda'):
        raise ValueError("device is %r, must be 'cpu' or 'cuda'" % (device,))
    numbers = (c_int32 * len(devices))(*devices) if devices else None
    return _abi.CommOptions(ctypes.sizeof(_abi.CommOptions), _abi.CUDA if device == 'cuda' else _abi.CPU, len(devices or ()), numbers)


class Context:
    """What calls need besides their arguments: a stream and a deadline. For one thread at a time. Its communicator's `close` closes it too.

    `stream`: the handle of a CUDA stream; None: one of the context's own.
    """

    def __init__(self, comm, stream=None, timeout_ms=0, arena_limit=0, stop=None):
        fields = {'stream': stream, 'timeout_ms': timeout_ms, 'arena_limit': arena_limit}
        if stop:
            fields['stop_op'], fields['stop_phase'] = (part.encode() for part in stop)
        self.comm, self.handle = comm, c_void_p()
        _abi.check(_abi.libmoert.moert_context_create(comm.handle, byref(_abi.ContextOptions(ctypes.sizeof(_abi.ContextOptions), **fields)),
                                                     byref(self.handle)))
        comm.contexts.add(self)

    def current(self):
        return self

    def synchronize(self):
        """Wait until the device has done what was called; raise Error for what it found wrong."""
        _abi.check(_abi.libmoert.moert_context_synchronize(self.handle))

    @property
    def stream(self):
        return _abi.libmoert.moert_context_stream(self.handle)

    def close(self):
        _abi.libmoert.moert_context_destroy(self.handle)
        self.handle = c_void_p()
        self.comm.contexts.discard(self)


class Workspace:
    """A workspace, initialized: `slab`, this rank's part of the symmetric memory, and `metainfo`. Use both as operands of the ops."""

    def __init__(self, comm, context, sizes):
        import numpy  # pylint: disable=import-outside-toplevel
        from . import _ops  # pylint: disable=import-outside-toplevel
        self.comm = comm
        self.slab = comm.symmetric(_ops.moe_workspace_size(context, **sizes))
        self.metainfo = numpy.zeros(16, numpy.int64)
        _ops.moe_initialize(context, workspace=self.slab, metainfo=self.metainfo, **sizes)

    def free(self):
        """Collective: no rank may use it any more."""
        self.comm.symmetric_free(self.slab)


class Comm:
    """One rank among its peers. Made by `threads`, `process` or `from_torch`; ops take it in place of a context, and then run on torch's current
    stream, or on the host. For one thread at a time."""

    def __init__(self, handle, timeout_ms):
        self.handle, self.timeout_ms = handle, timeout_ms
        self.contexts = set()  # that are open: none may outlive the communicator
        self._contexts = {}  # those that `current` made, by stream and thread

    # --- making ---

    @classmethod
    def threads(cls, size, device='cpu', devices=None, timeout_ms=0):
        """`size` ranks of this process, each for a thread: a list. Rank r runs on devices[r % len(devices)]; None: on all that there are."""
        handles = (c_void_p * size)()
        _abi.check(_abi.libmoert.moert_comm_create_threads(size, byref(_options(device, devices)), handles))
        return [cls(c_void_p(handle), timeout_ms) for handle in handles]

    @classmethod
    def process(cls, rank, size, allgather, device='cpu', devices=None, timeout_ms=0):
        """This process as a rank. `allgather` takes bytes and returns the bytes of all ranks in their order, a list; it is called a few times
        before this returns. Collective."""
        raised = []

        def gather(_user, mine, count, everyone):
            try:
                parts = allgather(ctypes.string_at(mine, count))
                if len(parts) != size or any(len(part) != count for part in parts):
                    raise ValueError('allgather: %d parts of %s bytes, must be %d of %d' % (len(parts), [len(p) for p in parts], size, count))
                ctypes.memmove(everyone, b''.join(parts), size * count)
                return 0
            except BaseException as error:  # pylint: disable=broad-except
                raised.append(error)  # it cannot go through C
                return 1

        handle = c_void_p()
        status = _abi.libmoert.moert_comm_create_process(rank, size, byref(_options(device, devices)), _abi.ALLGATHER(gather), None, byref(handle))
        if raised:
            raise raised[0]
        _abi.check(status)
        return cls(handle, timeout_ms)

    @classmethod
    def from_torch(cls, group=None, device=None, timeout_ms=0):
        """The ranks of a torch.distributed process group, each on torch's current CUDA device, or on the host if torch has none. Collective."""
        import torch  # pylint: disable=import-outside-toplevel
        from torch import distributed  # pylint: disable=import-outside-toplevel
        rank, size = distributed.get_rank(group), distributed.get_world_size(group)

        def allgather(mine):
            parts = [None] * size
            distributed.all_gather_object(parts, mine, group)
            return parts

        if device is None:
            device = 'cuda' if torch.cuda.is_available() else 'cpu'
        devices = allgather(torch.cuda.current_device()) if device == 'cuda' else None
        return cls.process(rank, size, allgather, device, devices, timeout_ms)

    # --- contexts ---

    def current(self):
        """The context of torch's current stream, made when it is first needed, which must not be while the stream is captured."""
        stream = self._current_stream()
        key = (stream, threading.get_ident())
        if key not in self._contexts:
            self._contexts[key] = Context(self, stream, self.timeout_ms)
        return self._contexts[key]

    def _current_stream(self):
        device, torch = self.device, sys.modules.get('torch')
        if device.type != _abi.CUDA or torch is None:
            return None
        return torch.cuda.current_stream(device.id).cuda_stream or _LEGACY_STREAM

    # --- what a communicator does ---

    @property
    def rank(self):
        return _abi.libmoert.moert_comm_rank(self.handle)

    @property
    def size(self):
        return _abi.libmoert.moert_comm_size(self.handle)

    @property
    def device(self):
        return _abi.libmoert.moert_comm_device(self.handle)

    @property
    def mask(self):
        """Bit r: rank r lives."""
        return _abi.libmoert.moert_comm_mask(self.handle)

    def barrier(self, timeout_ms=0):
        """Collective."""
        _abi.check(_abi.libmoert.moert_comm_barrier(self.handle, timeout_ms or self.timeout_ms))

    def check(self):
        """Raise Error if this rank has met an error, one in a kernel included. Waits for nothing: for loops that replay CUDA graphs."""
        _abi.check(_abi.libmoert.moert_comm_check(self.handle))

    def report(self, status=6001):
        """Tell the peers that this rank cannot go on."""
        _abi.libmoert.moert_comm_report(self.handle, status)

    def recover(self, mask, timeout_ms=0):
        """After an error, the ranks of `mask` go on without the others. Collective of those."""
        _abi.check(_abi.libmoert.moert_comm_recover(self.handle, mask, timeout_ms or self.timeout_ms))

    def dump(self):
        """What each rank waits for, and its first error: a list of lines."""
        lines = []
        _abi.libmoert.moert_comm_dump(self.handle, _abi.LOG(lambda _user, line: lines.append(line.decode())), None)
        return lines

    def symmetric(self, size):
        """`size` zeroed bytes that peers can address, as an array of i8: NumPy's on the host, torch's on CUDA. Collective."""
        address = c_void_p()
        _abi.check(_abi.libmoert.moert_symmetric_alloc(self.handle, size, byref(address)))
        return bytes_as_array(address.value, size, self.device, self)

    def symmetric_free(self, array):
        """Collective: no rank may use the memory any more."""
        address = array.data_ptr() if hasattr(array, 'data_ptr') else array.ctypes.data
        _abi.check(_abi.libmoert.moert_symmetric_free(self.handle, address))

    def workspace(self, max_num_tokens, dispatch_bytes_per_token, combine_bytes_per_token, eplb_stats_num_experts=0):
        """A workspace of these sizes, initialized. Collective."""
        return Workspace(self, self, {'max_num_tokens': max_num_tokens, 'dispatch_bytes_per_token': dispatch_bytes_per_token,
                                      'combine_bytes_per_token': combine_bytes_per_token, 'eplb_stats_num_experts': eplb_stats_num_experts})

    # --- life ---

    def close(self):
        """Release the contexts, and the communicator. Arrays of its symmetric memory must not be used afterwards."""
        for context in list(self.contexts):
            context.close()
        self._contexts.clear()
        _abi.libmoert.moert_comm_destroy(self.handle)
        self.handle = c_void_p()

    def __enter__(self):
        return self

    def __exit__(self, *_exception):
        self.close()
