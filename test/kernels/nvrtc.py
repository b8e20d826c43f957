#!/usr/bin/env python3
"""Compile the device functions that other kernels may use with NVRTC, which has none of the host's headers.

    nvrtc.py [--nvrtc LIBNVRTC]

For each architecture that is named below a kernel takes tiles of 8 and of 16 numbers to every format and back. It must compile without a warning, and every
kernel must be in the program.
"""
import argparse
import ctypes
import os
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
ARCHITECTURES = ('sm_90a', 'sm_100a')
KERNELS = ('quantize8', 'quantize16', 'dequantize')
SOURCE = r'''
#include "kernels/common/formats.cuh"

template <int kCount>
__device__ void quantizeTiles(const float *numbers, const float *global, int format, uint32_t *words, uint8_t *scales, moert__scale_grid grid) {
  float x[kCount];
  uint32_t codes[kCount / 4];
  for (int i = 0; i < kCount; ++i) x[i] = numbers[threadIdx.x * kCount + i];
  const QuantizeOptions options = {*global, 1.0f / *global, false, false, false};
  const uint32_t scale = quantizeTile(format, options, x, tileAmax(format, x), codes);
  for (int i = 0; i < kCount / 4; ++i) words[threadIdx.x * (kCount / 4) + i] = codes[i];
  scales[moert__scale_offset(&grid, 0, threadIdx.x)] = static_cast<uint8_t>(scale);
}

extern "C" __global__ void quantize8(const float *x, const float *global, int format, uint32_t *words, uint8_t *scales, moert__scale_grid grid) {
  quantizeTiles<8>(x, global, format, words, scales, grid);
}

extern "C" __global__ void quantize16(const float *x, const float *global, int format, uint32_t *words, uint8_t *scales, moert__scale_grid grid) {
  quantizeTiles<16>(x, global, format, words, scales, grid);
}

extern "C" __global__ void dequantize(const uint32_t *words, float factor, int format, float *numbers) {
  float x[8];
  const uint32_t codes[2] = {words[2 * threadIdx.x], words[2 * threadIdx.x + 1]};
  dequantizeTile(format, factor, false, codes, x);
  for (int i = 0; i < 8; ++i) numbers[8 * threadIdx.x + i] = x[i];
}
'''


def strings(*texts):
    return (ctypes.c_char_p * len(texts))(*[text.encode() for text in texts])


def read(nvrtc, program, what):
    """A text or image of a program: nvrtcGet<what>Size, nvrtcGet<what>."""
    size = ctypes.c_size_t()
    assert getattr(nvrtc, 'nvrtcGet%sSize' % what)(program, ctypes.byref(size)) == 0, what
    data = ctypes.create_string_buffer(size.value)
    assert getattr(nvrtc, 'nvrtcGet' + what)(program, data) == 0, what
    return data.raw


def compile_for(nvrtc, architecture):
    program = ctypes.c_void_p()
    assert nvrtc.nvrtcCreateProgram(ctypes.byref(program), SOURCE.encode(), b'formats.cu', 0, None, None) == 0
    options = ['--gpu-architecture=' + architecture, '--std=c++17', '--fmad=false', '-I' + ROOT]
    status = nvrtc.nvrtcCompileProgram(program, len(options), strings(*options))
    log = read(nvrtc, program, 'ProgramLog').rstrip(b'\0').decode()
    if status or log.strip():
        sys.exit('nvrtc.py: %s: status %d\n%s' % (architecture, status, log))
    image = read(nvrtc, program, 'CUBIN')
    missing = [name for name in KERNELS if b'.text.' + name.encode() not in image]
    if missing:
        sys.exit('nvrtc.py: %s: the program has no %s' % (architecture, ', '.join(missing)))
    nvrtc.nvrtcDestroyProgram(ctypes.byref(program))
    print('PASS %s: %d bytes' % (architecture, len(image)))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--nvrtc', default='libnvrtc.so.13')
    options = parser.parse_args()
    nvrtc = ctypes.CDLL(options.nvrtc)
    for architecture in ARCHITECTURES:
        compile_for(nvrtc, architecture)


if __name__ == '__main__':
    main()
