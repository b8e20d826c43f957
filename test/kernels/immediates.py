#!/usr/bin/env python3
"""Show that the static parameters of specialised kernels are immediates of their machine code.

    immediates.py [--nvcc NVCC] [--library LIBMOERT_CUDA [--cuobjdump CUOBJDUMP]]

Compiles immediates.cu to PTX. An instance must not load a static parameter from its arguments, and must have the immediates that follow from the values;
the generic kernel must load each parameter. With --library the same is read from the machine code of the library too, which needs cuobjdump and nvdisasm
of the CUDA toolkit.
"""
import argparse
import os
import re
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
SASS_ARGUMENTS = 0x210  # where they begin in the constant bank on sm_90

# Kernel, template arguments of the instance and of the generic one, the struct of its arguments, its static parameters, and immediates that only the
# instance has.
HIDDEN = {896: 'hidden_size = 7168 in vectors of 8'}
KERNELS = [
    ('placePairs', 'ILi8EE', 'ILi0EE', 'DispatchCall', ['topK'], {}),
    ('copyTokens', 'ILi7168ELi8E5uint4E', 'ILi0ELi0E5uint4E', 'DispatchCall', ['hidden', 'topK'], HIDDEN),
    ('combineRows', 'IL13moert__format0ELi7168ELi8ELi8EE', 'IL13moert__format0ELi0ELi0ELi8EE', 'CombineCall', ['hidden', 'topK'], HIDDEN),
    ('routeTokens', 'IL13moert__format0ELi256ELi8EE', 'IL13moert__format0ELi0ELi0EE', 'RouteCall', ['experts', 'topK'],
     {2048: 'bytes of two arrays of n_experts = 256 words'}),
]


class Ptx:
    name = 'PTX'

    def __init__(self, text):
        self.offsets = {name: int(value) for name, value in re.findall(r'\.global \.align 4 \.u32 (\w+)(?: = (\d+))?;', text) if value}
        self.functions = {}
        for match in re.finditer(r'\.entry (\w+)\((.*?)\n\}', text, re.S):
            self.functions[match.group(1)] = match.group(2)

    def loads(self, body):
        """Bytes of the arguments that are loaded: addresses are the arguments' own, or registers that are made of it by adding constants."""
        registers, loaded = {}, set()
        for line in body.split('\n'):
            if match := re.match(r'\s*mov\.[bu]64\s+(%rd\d+), (\S+);', line):
                source = match.group(2)
                if source.endswith('_param_0') or source in registers:
                    registers[match.group(1)] = registers.get(source, 0)
            elif match := re.match(r'\s*add\.s64\s+(%rd\d+), (%rd\d+), (-?\d+);', line):
                if match.group(2) in registers:
                    registers[match.group(1)] = registers[match.group(2)] + int(match.group(3))
            elif match := re.match(r'\s*ld\.param\.(v\d)?\.?[busf](\d+)\s+.*\[([^+\]]+)(?:\+(-?\d+))?\];', line):
                vector, bits, base, offset = match.groups()
                first = registers.get(base, 0) + int(offset or 0)
                loaded.update(range(first, first + int(bits) // 8 * int((vector or 'v1')[1])))
        return loaded

    @staticmethod
    def immediates(body):
        return {int(number) for number in re.findall(r', (-?\d+);', body)}


class Sass:
    name = 'machine code'

    def __init__(self, text):
        self.functions = {}
        for part in text.split('Function : ')[1:]:
            name, body = part.split('\n', 1)
            if 'EF_CUDA_SM90' in body:
                self.functions[name.strip()] = re.sub(r'/\*.*?\*/', '', body)

    @staticmethod
    def loads(body):
        loaded = set()
        for line in body.split('\n'):
            width = 8 if 'LDC.64' in line else 16 if 'LDC.128' in line else 4
            for offset in re.findall(r'c\[0x0\]\[(0x[0-9a-f]+)\]', line):
                first = int(offset, 16) - SASS_ARGUMENTS
                loaded.update(range(first, first + width))
        return loaded

    @staticmethod
    def immediates(body):
        return {int(number, 16) for number in re.findall(r'[ ,](0x[0-9a-f]+)\b', body)}


failures = 0


def check(holds, text):
    global failures
    failures += not holds
    print('%s %s' % ('PASS' if holds else 'FAIL', text))


def find(code, kernel, arguments):
    names = [name for name in code.functions if kernel + arguments in name]
    if len(names) == 1:
        return code.functions[names[0]]
    sys.exit('immediates.py: the %s has %d kernels %s with the template arguments %s' % (code.name, len(names), kernel, arguments))


def check_kernel(code, offsets, kernel, instance, generic, struct, parameters, immediates):
    bodies = find(code, kernel, instance), find(code, kernel, generic)
    loads = [code.loads(body) for body in bodies]
    where = '%s: %s' % (code.name, kernel)
    for parameter in parameters:
        offset = offsets['%s_%s' % (struct, parameter)]
        check(offset not in loads[0], '%s: the instance does not load %s' % (where, parameter))
        check(offset in loads[1], '%s: the generic kernel loads %s' % (where, parameter))
    for value, meaning in immediates.items():
        check(value in code.immediates(bodies[0]), '%s: the instance has the immediate %d (%s)' % (where, value, meaning))
        check(value not in code.immediates(bodies[1]), '%s: the generic kernel has not' % where)


def compile_ptx(nvcc):
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, 'immediates.ptx')
        subprocess.run([nvcc, '-std=c++17', '-O3', '-arch=sm_90a', '--fmad=false', '-I', ROOT, '-ptx', os.path.join(HERE, 'immediates.cu'), '-o', path], check=True)
        with open(path) as file:
            return Ptx(file.read())


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--nvcc', default='nvcc')
    parser.add_argument('--library')
    parser.add_argument('--cuobjdump', default='cuobjdump')
    options = parser.parse_args()
    ptx = compile_ptx(options.nvcc)
    codes = [ptx]
    if options.library:
        dump = subprocess.run([options.cuobjdump, '--dump-sass', options.library], check=True, capture_output=True, text=True).stdout
        codes.append(Sass(dump))
    for code in codes:
        for kernel in KERNELS:
            check_kernel(code, ptx.offsets, *kernel)
    print('%d failed' % failures)
    return failures > 0


if __name__ == '__main__':
    sys.exit(main())
