"""Loads a plugin as a program without MLIR would, and prints what it says of itself: API version, name, version, for the dialect and for the passes."""
import ctypes
import sys


class Info(ctypes.Structure):
    _fields_ = [('api', ctypes.c_uint32), ('name', ctypes.c_char_p), ('version', ctypes.c_char_p), ('callback', ctypes.c_void_p)]


try:
    plugin = ctypes.CDLL(sys.argv[1])
except OSError as error:
    sys.exit(str(error))
for function in (plugin.mlirGetDialectPluginInfo, plugin.mlirGetPassPluginInfo):
    function.restype = Info
    info = function()
    print(info.api, info.name.decode(), info.version.decode(), 'callback' if info.callback else 'nothing')
