# Tests of the compiler side. Files of a test's folder are found at %S, its scratch files begin with %t.
import os
import subprocess

import lit.formats

config.name = 'moe-mlir'
config.test_format = lit.formats.ShTest(execute_external=False)
config.test_source_root = os.path.dirname(__file__)
config.suffixes = ['.mlir', '.test']
config.excludes = ['Inputs']

config.environment['PATH'] = os.pathsep.join([config.moe_bin, config.moe_llvm_bin, config.environment['PATH']])
config.environment['MOE_BIN'] = config.moe_bin
config.environment['PYTHONDONTWRITEBYTECODE'] = '1'
config.environment['PYTHONPATH'] = os.path.join(config.test_source_root, 'oracle')
config.environment['OPENBLAS_NUM_THREADS'] = '1'
config.environment['FILECHECK_OPTS'] = '--dump-input-filter=error'
config.environment['ASAN_OPTIONS'] = 'detect_leaks=0'  # MLIR's registries live until the process ends
for name in ('MOERT_TIMEOUT_MS', 'TSAN_OPTIONS', 'UBSAN_OPTIONS'):
    if name in os.environ:
        config.environment[name] = os.environ[name]

# Kernels can be compiled, and with the CUDA backend in the build graphs can be linked.
cuda = os.environ.get('CUDA_HOME') or '/usr/local/cuda'
if all(os.access(os.path.join(cuda, name), os.R_OK) for name in ('bin/ptxas', 'bin/fatbinary', 'nvvm/libdevice/libdevice.10.bc')):
    config.available_features.add('ptxas')
    if os.path.exists(os.path.join(config.moe_lib, 'libmoert_cuda.so')):
        config.available_features.add('cuda')
if 'CUDA_HOME' in os.environ:
    config.environment['CUDA_HOME'] = os.environ['CUDA_HOME']


def pipeline(target):
    command = [os.path.join(config.moe_bin, 'moe-compile'), '--print-pipeline', '--target', target]
    return '"--pass-pipeline=%s"' % subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout.strip()


config.substitutions += [
    ('%pipeline', pipeline('host')),
    ('%device-pipeline', pipeline('sm_90a')),
    ('%cuda', cuda),
    ('%python', config.moe_python),
    ('%plugin', os.path.join(config.moe_lib, 'MoeMlirPlugin.so')),
    ('%mlir-opt', os.path.join(config.moe_llvm_bin, 'mlir-opt')),  # without anything of ours
    ('%bufferize', '--moe-declare-interface "--one-shot-bufferize=bufferize-function-boundaries=1 function-boundary-type-conversion=identity-layout-map"'
                   ' --canonicalize --cse --moe-place-buffers'),
    ('%moe-lib', config.moe_lib),
    ('%llvm-include', os.path.join(os.path.dirname(config.moe_llvm_bin), 'include')),
    ('%examples', os.path.join(config.test_source_root, '..', 'examples')),
]

# A program that is not built with the sanitizer cannot load a library that is.
if config.moe_sanitize:
    config.available_features.add('sanitizer')
