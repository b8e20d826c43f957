"""Mixture-of-experts ops on NumPy arrays and torch tensors: libmoert by ctypes. docs/python.md has examples."""
from ._abi import CPU, CUDA, Error, libmoert as _libmoert
from ._arrays import Typed as typed
from ._call import Kernel
from . import _ops
from ._ops import *  # noqa: F401,F403
from .comm import Comm, Context, Workspace

__all__ = ['CPU', 'CUDA', 'Comm', 'Context', 'Error', 'Kernel', 'Workspace', 'typed'] + _ops.__all__
__version__ = _libmoert.moert_version().decode()
