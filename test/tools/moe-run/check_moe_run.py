#!/usr/bin/env python3
"""Check moe-run: every option, every bad input, exit statuses and texts.

    check_moe_run.py MOE_RUN GRAPH_FOLDER SOURCE_FOLDER [unittest arguments]
"""
import os
import re
import struct
import subprocess
import sys
import tempfile
import unittest

import numpy as np

MOE_RUN, GRAPHS, SOURCE = sys.argv[1:4]
OK, DIFFERENT, USAGE, FILE, GRAPH, RANK = range(6)

TYPES = {  # argument's type: what the file holds
    'f32': '<f4', 'f64': '<f8', 'f16': '<f2', 'bf16': '<u2', 'i8': '|i1', 'i16': '<i2', 'i32': '<i4', 'i64': '<i8', 'ui8': '|u1', 'ui16': '<u2',
    'ui32': '<u4', 'ui64': '<u8', 'bool': '|b1', 'e4m3': '|u1', 'e5m2': '|u1', 'e8m0': '|u1',
}

REMEDY = 'give --backend cuda and a graph that was compiled for sm_90a'

MLIR_NAMES = {'e4m3': 'f8E4M3FN', 'e5m2': 'f8E5M2', 'e8m0': 'f8E8M0FNU'}


def npy(header, data=b'', version=(1, 0)):
    """The bytes of a .npy whose header is given as text."""
    length = struct.pack('<H' if version[0] == 1 else '<I', len(header))
    return b'\x93NUMPY' + bytes(version) + length + header.encode('latin1') + data


def header(descr="'<f4'", fortran='False', shape='(2, 8)'):
    return "{'descr': %s, 'fortran_order': %s, 'shape': %s, }\n" % (descr, fortran, shape)


class Case(unittest.TestCase):
    maxDiff = None

    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.cwd = self.folder.name

    def run_tool(self, *arguments, graph='moe-run-graph', environment=None):
        command = [MOE_RUN] + ([os.path.join(GRAPHS, graph + '.so')] if graph else []) + list(arguments)
        return subprocess.run(command, cwd=self.cwd, capture_output=True, text=True, timeout=120, env=dict(os.environ, **(environment or {})))

    def check(self, status, *arguments, **options):
        """Run; the whole of stderr must be `error` (with the tool's prefix), the whole of stdout `output`, where given."""
        error, output = options.pop('error', None), options.pop('output', None)
        done = self.run_tool(*arguments, **options)
        self.assertEqual(done.returncode, status, done.stdout + done.stderr)
        if error is not None:
            self.assertEqual(done.stderr, ''.join('moe-run: %s\n' % line for line in ([error] if isinstance(error, str) else error)))
        elif status == OK:
            self.assertEqual(done.stderr, '')
        if output is not None:
            self.assertEqual(done.stdout, output)
        return done

    def save(self, name, array):
        np.save(os.path.join(self.cwd, name), array)
        return array

    def load(self, name):
        return np.load(os.path.join(self.cwd, name))

    def write(self, name, data):
        with open(os.path.join(self.cwd, name), 'wb') as file:
            file.write(data)

    def numbers(self, *shape):
        return np.random.default_rng(7).standard_normal(shape).astype('<f4')


class CommandLine(Case):
    def test_help_names_every_option(self):
        with open(os.path.join(SOURCE, 'tools/moe-run/options.c')) as file:
            rows = re.search(r'\btable\[\] = \{(.*?)\n\};', file.read(), re.S).group(1)
        names = set(re.findall(r'\{"([a-z0-9-]+)",', rows))
        self.assertGreaterEqual(len(names), 22)
        text = self.check(OK, '--help', graph=None).stdout
        self.assertEqual(names, set(re.findall(r'^  --([a-z0-9-]+)', text, re.M)))
        with open(os.path.join(SOURCE, 'docs/moe-run.md')) as file:
            manual = file.read()
        self.assertEqual(names, set(re.findall(r'^\| `--([a-z0-9-]+)', manual, re.M)))
        for status, meaning in re.findall(r'^  ([0-5])  (.*)$', text, re.M):
            self.assertIn('| %s | %s' % (status, meaning), manual)
        self.assertIn('usage: moe-run', text)

    def test_version(self):
        with open(os.path.join(SOURCE, 'VERSION')) as file:
            version = file.read().strip()
        self.check(OK, '--version', graph=None, output='moe-run %s, libmoert %s, ABI 2\n' % (version, version))

    def test_usage_errors(self):
        for arguments, error in (
                (['--frobnicate'], "unknown option '--frobnicate'; see moe-run --help"),
                (['--rank', '2'], "unknown option '--rank'; see moe-run --help"),
                (['-h'], "unknown option '-h'; see moe-run --help"),
                (['other.so'], "more than one graph: '%s' and 'other.so'" % os.path.join(GRAPHS, 'moe-run-graph.so')),
                (['--ranks'], '--ranks needs N'),
                (['--input'], '--input needs NAME=FILE.npy'),
                (['--quiet=1'], '--quiet takes no operand'),
                (['--ranks', '0'], '--ranks 0: expected a number from 1 to 64'),
                (['--ranks=65'], '--ranks 65: expected a number from 1 to 64'),
                (['--ranks', '2x'], '--ranks 2x: expected a number from 1 to 64'),
                (['--backend', 'gpu'], '--backend gpu: expected host or cuda'),
                (['--devices', '0,'], '--devices 0,: expected at most 64 numbers of devices, such as 0,1'),
                (['--devices', '-1'], '--devices -1: expected at most 64 numbers of devices, such as 0,1'),
                (['--devices', '0x1'], '--devices 0x1: expected at most 64 numbers of devices, such as 0,1'),
                (['--devices', ','.join('0' * 65)], '--devices %s: expected at most 64 numbers of devices, such as 0,1' % ','.join('0' * 65)),
                (['--graph=0'], '--graph=0: expected a number from 1 to 1000000'),
                (['--graph=x'], '--graph=x: expected a number from 1 to 1000000'),
                (['--graph', '3'], "more than one graph: '%s' and '3'" % os.path.join(GRAPHS, 'moe-run-graph.so')),
                (['--check=1'], '--check takes no operand'),
                (['--processes=2'], '--processes takes no operand'),
                (['--check'], '--check compares with the host backend, which is where this runs: ' + REMEDY),
                (['--graph'], '--graph: the host backend has no CUDA graphs: ' + REMEDY),
                (['--devices', '0'], '--devices: the host backend has none to choose from: ' + REMEDY),
                (['--input', 'x'], '--input x: expected NAME=VALUE'),
                (['--input', '=x'], '--input =x: expected NAME=VALUE'),
                (['--output', 'x='], '--output x=: expected NAME=VALUE'),
                (['--input', 'x=1', '--input', 'x=2'], "--input x=2: 'x' is given twice"),
                (['--random', '-1'], '--random -1: expected a number that is not negative'),
                (['--rtol', '-1'], '--rtol -1: expected a number that is not negative'),
                (['--rtol', '1e999'], '--rtol 1e999: expected a number that is not negative'),
                (['--atol', 'nan'], '--atol nan: expected a number that is not negative'),
                (['--rel-l2', ''], '--rel-l2 : expected a number that is not negative'),
                (['--rtol', '1'], '--rtol, --atol and --rel-l2 are for --expect and --check, which are not given'),
                (['--repeat', '0'], '--repeat 0: expected a number from 1 to 1000000'),
                (['--timeout', '0'], '--timeout 0: expected seconds from 0.001 to 1000000'),
                (['--timeout', 'nan'], '--timeout nan: expected seconds from 0.001 to 1000000'),
                (['--stop', '1@moe.dispatch:data'], '--stop: rank 1 does not exist; --ranks is 1'),
                (['--function', 'nothing'], '--function nothing: the graph has no such function; it has scale, add_y, copy, numbers, free_size, '
                 'forget, fail, nap, die, near, count, init, exchange, unknown'),
                ([], 'the graph has 14 functions: choose with --function from scale, add_y, copy, numbers, free_size, forget, fail, nap, die, '
                 'near, count, init, exchange, unknown'),
        ):
            with self.subTest(arguments=arguments):
                self.check(USAGE, *arguments, error=error, output='')
        for stop in ('moe.dispatch:data', '1@moe.dispatch', '1@:data', '1@moe.dispatch:later', '-1@moe.dispatch:data', 'x@moe.dispatch:data'):
            with self.subTest(stop=stop):
                self.check(USAGE, '--stop', stop, error='--stop %s: expected RANK@OP:PHASE, such as 2@moe.dispatch:data; phases are entry, counts, '
                           'data, flag' % stop)
        self.check(USAGE, graph=None, error='no graph given; see moe-run --help')

    def test_names(self):
        scale = ['--function', 'scale']
        for arguments, error in (
                (['--input', 'foo=1'], '--input foo: the functions that run have no such argument; they have x, factor, y, calls'),
                (['--output', 'foo=1'], '--output foo: the functions that run have no such argument; they have x, factor, y, calls'),
                (['--expect', 'foo=1'], '--expect foo: the functions that run have no such argument; they have x, factor, y, calls'),
                (['--input', 'y=y.npy'], '--input y: the argument is an output; nothing reads it before it is written'),
                (['--output', 'factor=y.npy'], '--output factor: the argument is a number passed by value'),
                (['--expect', 'factor=y.npy'], '--expect factor: the argument is a number passed by value'),
                (['--size', 'U=3'], '--size U: the functions that run have no such size; symbols: T'),
                (['--size', 'T=-3'], '--size T=-3: expected numbers that are not negative'),
                (['--size', 'T=3,'], '--size T=3,: 2 sizes for 1 ranks: give one, or one per rank'),
                (['--size', 'T=,,', '--ranks', '3'], '--size T=,,: expected numbers that are not negative'),
                (['--size', 'T=1,2', '--ranks', '3'], '--size T=1,2: 2 sizes for 3 ranks: give one, or one per rank'),
                (['--random', '1'], "argument 'factor' is a number: give it with --input factor=NUMBER"),
                (['--input', 'factor=1'], "argument 'x' has no contents: give --input x=FILE.npy or --random SEED"),
                (['--ranks', '2', '--output', 'y=y.npy'], "--output y=y.npy: 2 ranks need one file each: put {rank} into the file's name"),
                (['--ranks', '2', '--expect', 'y=y.npy'], "--expect y=y.npy: 2 ranks need one file each: put {rank} into the file's name"),
        ):
            with self.subTest(arguments=arguments):
                self.check(USAGE, *scale, *arguments, error=error, output='')
        self.check(USAGE, '--function', 'free_size', '--size', 'v=1', error='--size v: the functions that run have no such size; symbols: none')

    def test_one_function_needs_no_name(self):
        self.check(OK, graph='moe-run-graph-one', output='')

    def test_after_two_dashes_comes_the_graph(self):
        self.check(OK, '--', os.path.join(GRAPHS, 'moe-run-graph-one.so'), graph=None, output='')


class Graphs(Case):
    def test_bad_graphs(self):
        path = os.path.join(GRAPHS, 'moe-run-graph-%s.so')
        self.check(GRAPH, graph='moe-run-graph-abi', error="MOERT_ERROR_ABI_VERSION (the graph was compiled for another version of the run side): "
                   "'%s' was compiled for version 999 of the run side, this library is version 2; compile it again" % (path % 'abi'))
        done = self.check(GRAPH, graph='moe-run-graph-magic')
        self.assertIn("is not a compiled graph", done.stderr)
        done = self.check(GRAPH, 'nowhere.so', graph=None)
        self.assertIn("MOERT_ERROR_NOT_FOUND (no such function, argument or file): there is no file 'nowhere.so'", done.stderr)
        self.write('text.so', b'no library')
        done = self.check(GRAPH, './text.so', graph=None)
        self.assertIn('MOERT_ERROR_LOAD (a shared library could not be loaded)', done.stderr)

    def test_unknown_element_type(self):
        self.check(GRAPH, '--function', 'unknown', error="function 'unknown': argument 'q' has element type 0x10400, which moe-run does not know")

    def test_info(self):
        text = self.check(OK, '--info').stdout
        for line in ('target host', 'ABI 2', 'producer the tests of moe-run', 'function scale', '  in     x       device    f32[T, 8]',
                     '  in     factor  value     f32', '  out    y       device    f32[T, 8]', '  inout  calls   host      i64[1]',
                     '  inout  v  host      f32[?, ?]', '  inout  slab      symmetric i8[slab_bytes]',
                     '         workspace: max_num_tokens 16, dispatch_bytes_per_token 32, combine_bytes_per_token 32, eplb_stats_num_experts 0, '
                     'ep_size from the context', '  in     in_bf16   device    bf16[N]', '  in     q  device    type 0x10400[8]',
                     'kernel moe.initialize/host/w16', 'kernel moe.dispatch/host/f32,k2,e8'):
            self.assertIn(line + '\n', text)


class Runs(Case):
    SCALE = ['--function', 'scale', '--input', 'factor=2.5', '--input', 'x=x.npy']

    def test_scale(self):
        x = self.save('x.npy', self.numbers(5, 8))
        self.check(OK, *self.SCALE, '--output', 'y=y.npy', '--output', 'calls=calls.npy', '--backend=host', output='')
        np.testing.assert_array_equal(self.load('y.npy'), x * np.float32(2.5))
        self.assertEqual(self.load('y.npy').dtype, np.dtype('<f4'))
        np.testing.assert_array_equal(self.load('calls.npy'), [1])
        with open(os.path.join(self.cwd, 'y.npy'), 'rb') as file:
            self.assertEqual(len(file.read()), 128 + 5 * 8 * 4)

    def test_zero_tokens(self):
        self.save('x.npy', self.numbers(0, 8))
        self.check(OK, *self.SCALE, '--output', 'y=y.npy', '--expect', 'y=x.npy')
        self.assertEqual(self.load('y.npy').shape, (0, 8))

    def test_functions_share_buffers(self):
        x = self.save('x.npy', self.numbers(3, 8))
        self.check(OK, *self.SCALE, '--function', 'add_y', '--output', 'z=z.npy')
        np.testing.assert_array_equal(self.load('z.npy'), 2 * (x * np.float32(2.5)))

    def test_inout_starts_from_its_file_which_stays(self):
        self.save('x.npy', self.numbers(3, 8))
        self.save('calls.npy', np.array([40], '<i8'))
        self.check(OK, *self.SCALE, '--function', 'scale', '--input', 'calls=calls.npy', '--output', 'calls=after.npy')
        np.testing.assert_array_equal(self.load('after.npy'), [42])
        np.testing.assert_array_equal(self.load('calls.npy'), [40])

    def test_output_in_place_of_the_input(self):
        self.save('x.npy', self.numbers(3, 8))
        self.save('calls.npy', np.array([40], '<i8'))
        self.check(OK, *self.SCALE, '--input', 'calls=calls.npy', '--output', 'calls=calls.npy')
        np.testing.assert_array_equal(self.load('calls.npy'), [41])
        self.assertEqual(sorted(os.listdir(self.cwd)), ['calls.npy', 'x.npy'])

    def test_ranks_with_files_and_numbers_of_their_own(self):
        x = [self.save('x%d.npy' % rank, self.numbers(rank, 8)) for rank in range(3)]
        self.check(OK, '--function', 'scale', '--ranks', '3', '--input', 'x=x{rank}.npy', '--input', 'factor=1,2,-4', '--output', 'y=y{rank}.npy')
        for rank, factor in enumerate((1, 2, -4)):
            np.testing.assert_array_equal(self.load('y%d.npy' % rank), x[rank] * np.float32(factor))

    def test_ranks_share_a_file(self):
        x = self.save('x.npy', self.numbers(2, 8))
        self.check(OK, *self.SCALE, '--ranks', '64', '--output', 'y=y{rank}.{rank}.npy')
        np.testing.assert_array_equal(self.load('y63.63.npy'), x * np.float32(2.5))

    def test_repeat(self):
        self.save('x.npy', self.numbers(2, 8))
        done = self.check(OK, *self.SCALE, '--repeat', '7', '--ranks', '2', '--output', 'calls=calls{rank}.npy')
        self.assertRegex(done.stdout, r'\Ascale: 7 runs on 2 ranks: min \d+\.\d{3} ms, median \d+\.\d{3} ms\n\Z')
        np.testing.assert_array_equal(self.load('calls1.npy'), [7])
        self.check(OK, *self.SCALE, '--repeat', '7', '--quiet', output='')
        done = self.check(OK, *self.SCALE, '--function', 'add_y', '--repeat', '1', '--output', 'calls=calls.npy')
        self.assertRegex(done.stdout, r'\Aadd_y: 1 run on 1 rank: ')
        np.testing.assert_array_equal(self.load('calls.npy'), [1])

    def test_progress(self):
        nap = ['--function', 'nap', '--input', 'milliseconds=1200', '--ranks', '2']
        done = self.run_tool(*nap)
        self.assertRegex(done.stderr, r'\Amoe-run: running nap on 2 ranks \.\.\. 1\.\d s\n\Z')
        self.assertEqual(self.run_tool(*nap, '--quiet').stderr, '')

    def test_poison(self):
        self.check(OK, '--function', 'forget', '--output', 'v=v.npy', '--output', 'w=w.npy')
        self.assertEqual([hex(v) for v in self.load('v.npy').view('<u4')], ['0x80808080'] * 3)
        self.assertEqual([hex(w) for w in self.load('w.npy')], ['0xffff'] * 3)

    def test_sizes_without_symbols(self):
        self.check(OK, '--function', 'free_size', '--size', 'v.0=2', '--size', 'v.1=3', '--output', 'v=v.npy', '--random', '1')
        np.testing.assert_array_equal(self.load('v.npy'), np.ones((2, 3)))
        self.check(USAGE, '--function', 'free_size', '--size', 'v.0=2',
                   error='rank 0: size v.1 is not known: no input file fixes it; give --size v.1=N')

    def test_sizes(self):
        random = ['--function', 'scale', '--input', 'factor=1', '--random', '3', '--ranks', '2']
        self.check(OK, *random, '--size', 'T=4,1', '--output', 'y=y{rank}.npy')
        self.assertEqual((self.load('y0.npy').shape, self.load('y1.npy').shape), ((4, 8), (1, 8)))
        self.check(USAGE, *random, error='all ranks: size T is not known: no input file fixes it; give --size T=N')
        self.check(USAGE, *random, '--size', 'T=9223372036854775807',
                   error="all ranks: argument 'x': [9223372036854775807, 8] has more bytes than fit a 64-bit size")
        self.save('x.npy', self.numbers(5, 8))
        self.check(FILE, *random, '--size', 'T=5,6', '--input', 'x=x.npy', error='rank 1: size T is 5 (x.npy) and 6 (--size)')

    def test_random(self):
        outputs = [argument for name in TYPES for argument in ('--output', 'out_%s={rank}%s.npy' % (name, name))]
        copy = ['--function', 'copy', '--size', 'N=4096', '--ranks', '2'] + outputs
        self.check(OK, *copy, '--random', '5')
        first = {name: self.load('0%s.npy' % name) for name in TYPES}
        for name in ('f32', 'f64', 'f16'):
            self.assertTrue(0.2 < first[name].astype(float).std() < 0.4 and abs(first[name].astype(float).mean()) < 0.05)
            self.assertTrue(np.all(np.abs(first[name]) < 1) and np.all(first[name] != 0))
        bf16 = (first['bf16'].astype('<u4') << 16).view('<f4')
        self.assertTrue(0.2 < bf16.std() < 0.4 and np.all(np.abs(bf16) <= 1))
        for name in ('i8', 'i16', 'i32', 'i64', 'ui8', 'ui16', 'ui32', 'ui64'):
            self.assertEqual(set(first[name].tolist()), set(range(8)), name)
        self.assertEqual(set(first['bool'].view('u1').tolist()), {0, 1})
        self.assertTrue(np.all(first['e4m3'] & 0x7f < 0x40) and len(set(first['e4m3'].tolist())) > 50)  # |x| <= 1, many different
        self.assertEqual(set(first['e8m0'].tolist()), {124, 125, 126, 127})
        self.assertFalse(np.array_equal(first['f32'], self.load('1f32.npy')))
        self.check(OK, *copy, '--random', '5')
        for name in TYPES:
            np.testing.assert_array_equal(first[name], self.load('0%s.npy' % name))
        self.check(OK, *copy, '--random', '6')
        self.assertFalse(np.array_equal(first['f32'], self.load('0f32.npy')))

    def test_all_types_travel(self):
        generator = np.random.default_rng(1)
        arguments = ['--function', 'copy']
        for name, descr in TYPES.items():
            raw = generator.integers(0, 2 if name == 'bool' else 256, 24 * np.dtype(descr).itemsize, 'u1')
            self.save(name + '.npy', raw.view(descr))
            arguments += ['--input', 'in_%s=%s.npy' % (name, name), '--output', 'out_%s=%s_out.npy' % (name, name)]
            arguments += ['--expect', 'out_%s=%s.npy' % (name, name)]
        done = self.check(OK, *arguments)
        self.assertEqual(len(re.findall('agrees with', done.stdout)), len(TYPES))
        for name, descr in TYPES.items():
            self.assertEqual(self.load(name + '_out.npy').dtype, np.dtype(descr))
            np.testing.assert_array_equal(self.load(name + '_out.npy').view('u1'), self.load(name + '.npy').view('u1'))

    def test_numbers(self):
        values = {'f32': '1e-3', 'f64': '-0.1', 'f16': '0.333', 'bf16': '3.14159', 'i8': '-128', 'i16': '32767', 'i32': '-2147483648',
                  'i64': '9223372036854775807', 'ui8': '255', 'ui16': '65535', 'ui32': '4294967295', 'ui64': '18446744073709551615', 'bool': '1',
                  'e4m3': '448', 'e5m2': '-57344', 'e8m0': '0.25'}
        arguments = [a for name, value in values.items() for a in ('--input', '%s=%s' % (name, value))]
        self.check(OK, '--function', 'numbers', *arguments, '--output', 'bytes=bytes.npy')
        codes = {'f16': struct.pack('<e', 0.333), 'bf16': b'\x49\x40', 'e4m3': b'\x7e', 'e5m2': b'\xfb', 'e8m0': b'\x7d'}
        for row, name in zip(self.load('bytes.npy'), TYPES):
            number = None if name in codes else float(values[name]) if name in ('f32', 'f64') else int(values[name])
            expected = codes[name] if name in codes else np.array(number).astype(TYPES[name]).tobytes()
            self.assertEqual(row.tobytes(), expected.ljust(8, b'\0'), name)
        for name, value in (('f32', '1e39'), ('f16', '65520'), ('bf16', 'nan'), ('i8', '128'), ('i16', '-32769'), ('i32', '2147483648'),
                            ('i64', '9223372036854775808'), ('ui8', '256'), ('ui16', '-1'), ('ui32', '4294967296'), ('ui64', '18446744073709551616'),
                            ('bool', '2'), ('e4m3', '480'), ('e5m2', '61440'), ('e8m0', '3'), ('e8m0', '-1'), ('e8m0', '0'),
                            ('e8m0', '1e39'), ('f64', 'x'), ('f64', '1e999'), ('f32', '-1e999')):
            with self.subTest(name=name, value=value):
                changed = [('%s=%s' % (name, value)) if a.startswith(name + '=') else a for a in arguments]
                self.check(USAGE, '--function', 'numbers', *changed,
                           error='rank 0: --input %s=%s: not a number that fits %s' % (name, value, MLIR_NAMES.get(name, name)))
        self.check(USAGE, '--function', 'nap', '--ranks', '3', '--input', 'milliseconds=1,2',
                   error='all ranks: --input milliseconds=1,2: 2 numbers for 3 ranks: give one, or one per rank')
        self.check(USAGE, '--function', 'nap', '--ranks', '3', '--input', 'milliseconds=1,,2',
                   error='rank 1: --input milliseconds=1,,2: not a number that fits i64')


class Npy(Case):
    SCALE = ['--function', 'scale', '--input', 'factor=1', '--input', 'x=x.npy']

    def test_versions(self):
        x = self.numbers(2, 8)
        for version in ((1, 0), (2, 0), (3, 0)):
            for text in (header(), '{"shape":(2,8,),"descr":"<f4","fortran_order":False}', header() + ' ' * 300 + '\n'):
                self.write('x.npy', npy(text, x.tobytes(), version))  # not aligned: copied
                self.check(OK, *self.SCALE, '--output', 'y=y.npy')
                np.testing.assert_array_equal(self.load('y.npy'), x)

    def test_raw_bytes_of_extension_types(self):
        for descr in ('<V2', '|V2'):
            self.write('b.npy', npy(header("'%s'" % descr, shape='(3,)'), bytes(range(6))))
            self.check(OK, '--function', 'copy', '--random', '1', '--input', 'in_bf16=b.npy', '--output', 'out_bf16=c.npy')
            self.assertEqual(self.load('c.npy').tobytes(), bytes(range(6)))
        self.write('b.npy', npy(header("'|V1'", shape='(3,)'), b'\1\2\3'))
        self.check(OK, '--function', 'copy', '--random', '1', '--input', 'in_e4m3=b.npy', '--output', 'out_e4m3=c.npy')
        self.assertEqual(self.load('c.npy').tobytes(), b'\1\2\3')

    def test_broken_files(self):
        data = self.numbers(2, 8).tobytes()
        array = 'the header is not that of one array: it must give descr as a string, fortran_order and shape'
        for content, error in (
                (b'', 'not a .npy file (no magic)'),
                (b'\x93NUMPY', 'not a .npy file (no magic)'),
                (b'PK\3\4' + data, 'not a .npy file (no magic)'),
                (npy(header(), data, (4, 0)), '.npy version 4.0; 1.0, 2.0 and 3.0 are read'),
                (npy(header(), data, (1, 1)), '.npy version 1.1; 1.0, 2.0 and 3.0 are read'),
                (npy(header())[:40], 'truncated: the header needs 70 bytes, the file has 40'),
                (b'\x93NUMPY\2\0\xff\xff', 'truncated: the header needs 65547 bytes, the file has 10'),
                (npy(header(), data[:-1]), 'truncated: <f4[2, 8] needs 64 bytes of data, the file has 63'),
                (npy(header()), 'truncated: <f4[2, 8] needs 64 bytes of data, the file has 0'),
                (npy(header(), data + b'\0'), 'too long: <f4[2, 8] needs 64 bytes of data, the file has 65'),
                (npy(header(fortran='True'), data), 'the array is in Fortran order; write it with numpy.ascontiguousarray'),
                (npy(header("'>f4'"), data), "element type '>f4' is not read; it must be a number of 1 to 8 bytes in little-endian order"),
                (npy(header("'<c8'"), data), "element type '<c8' is not read; it must be a number of 1 to 8 bytes in little-endian order"),
                (npy(header("'<U12'"), data), "element type '<U12' is not read; it must be a number of 1 to 8 bytes in little-endian order"),
                (npy(header(shape='(4611686018427387904, 8)'), data), '<f4[4611686018427387904, 8] has more elements than fit a 64-bit size'),
                (npy(header("[('a', '<f4')]"), data), array),
                (npy(header("'<f4'abc"), data), array),
                (npy(header("'<f4aaaaaaaaaaaaaaaaa'"), data), array),
                (npy(header(shape='(2 8)'), data), array),
                (npy(header(shape='(16)'), data), array),
                (npy(header(shape='(-2, 8)'), data), array),
                (npy(header(shape='(99999999999999999999, 8)'), data), array),
                (npy(header(shape='(%s)' % ', '.join('1' * 65)), data), array),
                (npy(header(fortran='Maybe'), data), array),
                (npy("{'descr': '<f4', 'shape': (2, 8)}", data), array),
                (npy("{'descr': '<f4', 'descr': '<f4', 'fortran_order': False, 'shape': (2, 8)}", data), array),
                (npy("{'descr': '<f4', 'fortran_order': False, 'shape': (2, 8), 'more': 1}", data), array),
                (npy("{'descr': '<f4', 'fortran_order': False, 'shape': (2, 8)", data), array),
                (npy(header() + 'x', data), array),
                (npy('', data), array),
        ):
            with self.subTest(error=error, content=content[:150]):
                self.write('x.npy', content)
                self.check(FILE, *self.SCALE, error='rank 0: x.npy: ' + error, output='')

    def test_files_that_do_not_fit(self):
        needs = "argument 'x' needs f32[T, 8], element type <f4"
        for array, has in ((np.zeros((2, 8), '<f8'), '<f8[2, 8]'), (np.zeros((2, 8), '<i4'), '<i4[2, 8]'), (np.zeros((2, 7), '<f4'), '<f4[2, 7]'),
                           (np.zeros(8, '<f4'), '<f4[8]'), (np.zeros((2, 2, 4), '<f4'), '<f4[2, 2, 4]'), (np.float32(1), '<f4[]')):
            with self.subTest(has=has):
                self.save('x.npy', array)
                self.check(FILE, *self.SCALE, error='rank 0: x.npy: the file has %s; %s' % (has, needs))
        copy = ['--function', 'copy', '--random', '1', '--size', 'N=2']
        for name, kind, other in (('bf16', 'bf16', '<f2'), ('bf16', 'bf16', '<i2'), ('ui8', 'ui8', '|i1'), ('i8', 'i8', '|u1'),
                                  ('e4m3', 'f8E4M3FN', '|i1'), ('bool', 'bool', '|u1'), ('i64', 'i64', '<i4'), ('ui32', 'ui32', '<i4')):
            with self.subTest(name=name):
                self.save('in.npy', np.zeros(2, other))
                self.check(FILE, *copy, '--input', 'in_%s=in.npy' % name,
                           error="rank 0: in.npy: the file has %s[2]; argument 'in_%s' needs %s[N], element type %s" %
                                  (other, name, kind, TYPES[name]))

    def test_files_that_disagree(self):
        self.save('a.npy', np.zeros(2, '<f4'))
        self.save('b.npy', np.zeros(3, '<f8'))
        self.check(FILE, '--function', 'copy', '--random', '1', '--input', 'in_f64=b.npy', '--input', 'in_f32=a.npy',
                   error="rank 0: b.npy: the file has <f8[3]; argument 'in_f64' needs f64[N] with N = 2 (a.npy), element type <f8")

    def test_missing_and_unreadable(self):
        self.check(FILE, *self.SCALE, error='rank 0: x.npy: No such file or directory')
        os.mkdir(os.path.join(self.cwd, 'x.npy'))
        self.check(FILE, *self.SCALE, error='rank 0: x.npy: not a regular file')
        self.check(FILE, *self.SCALE[:4], '--input', 'x=x{rank}.npy', '--ranks', '2',
                   error=['rank 0: x0.npy: No such file or directory', 'rank 1: x1.npy: No such file or directory'])

    def test_output_that_cannot_be_written(self):
        self.save('x.npy', self.numbers(2, 8))
        self.check(FILE, *self.SCALE, '--output', 'y=nowhere/y.npy', error='nowhere/y.npy: cannot be written: No such file or directory')
        self.check(FILE, *self.SCALE, '--output', 'y=/dev/full', error='/dev/full: cannot be written: No space left on device')
        self.check(OK, *self.SCALE, '--output', 'y=/dev/null')


class Expect(Case):
    SCALE = ['--function', 'scale', '--input', 'factor=1', '--input', 'x=x.npy', '--expect', 'y=e.npy']

    def setUp(self):
        super().setUp()
        self.x = self.save('x.npy', self.numbers(3, 8))

    def test_equal(self):
        self.save('e.npy', self.x)
        self.check(OK, *self.SCALE, output='rank 0: y agrees with e.npy: rel-L2 0, max abs error 0, 24 elements\n')
        self.check(OK, *self.SCALE, '--quiet', output='')

    def test_different(self):
        expected = self.x.copy()
        expected[1, 2] += 0.5
        expected[2, 7] += 0.25
        self.save('e.npy', expected)
        rel_l2 = np.linalg.norm(self.x.astype('f8') - expected) / np.linalg.norm(expected.astype('f8'))
        first = '%.9g, expected %.9g' % (self.x[1, 2], expected[1, 2])
        text = ('rank 0: y differs from e.npy: rel-L2 %.3g, max abs error 0.5; 2 of 24 elements beyond atol 0 + rtol 0 * |expected|; '
                'first at [1, 2]: %s\n' % (rel_l2, first))
        self.check(DIFFERENT, *self.SCALE, error=[], output=text)
        self.check(DIFFERENT, *self.SCALE, '--quiet', error=[], output=text)
        done = self.check(DIFFERENT, *self.SCALE, '--atol', '0.3')
        self.assertIn('; 1 of 24 elements beyond atol 0.3 + rtol 0 * |expected|; first at [1, 2]: ', done.stdout)
        self.check(OK, *self.SCALE, '--atol', '0.51')
        self.check(OK, *self.SCALE, '--rtol', '1e3')
        self.check(OK, *self.SCALE, '--rel-l2', '0.5')
        done = self.check(DIFFERENT, *self.SCALE, '--rel-l2', '1e-3')
        self.assertEqual(done.stdout, 'rank 0: y differs from e.npy: rel-L2 %.3g, max abs error 0.5 (rel-L2 may be 0.001), 24 elements\n' % rel_l2)
        self.check(DIFFERENT, *self.SCALE, '--rel-l2', '0.5', '--rtol', '0')
        self.check(DIFFERENT, *self.SCALE, '--rel-l2', '1e-3', '--atol', '1')

    def test_wider_expectation(self):
        self.save('e.npy', self.x.astype('<f8') + 1e-6)
        self.check(DIFFERENT, *self.SCALE)
        self.check(OK, *self.SCALE, '--atol', '2e-6')

    def test_special_numbers(self):
        self.x[0, :4] = [np.nan, np.inf, -np.inf, -0.0]
        self.save('x.npy', self.x)
        expected = self.x.copy()
        expected[0, 3] = 0.0
        self.save('e.npy', expected)
        self.check(OK, *self.SCALE, '--rel-l2', '0', '--rtol', '0')
        for column, wrong in ((0, 1), (1, -np.inf), (1, 3), (2, np.nan), (5, np.inf), (6, np.nan)):
            with self.subTest(column=column, wrong=wrong):
                changed = expected.copy()
                changed[0, column] = wrong
                self.save('e.npy', changed)
                done = self.check(DIFFERENT, *self.SCALE, '--rtol', '1', '--atol', '1e30')
                self.assertIn('max abs error inf; 1 of 24 elements', done.stdout)
                self.assertIn('first at [0, %d]' % column, done.stdout)
                self.check(DIFFERENT, *self.SCALE, '--rel-l2', '1e30')

    def test_zero_norm(self):
        self.save('e.npy', np.zeros((3, 8), '<f4'))
        self.check(DIFFERENT, *self.SCALE, '--rel-l2', '1e30')
        self.save('x.npy', np.zeros((3, 8), '<f4'))
        self.check(OK, *self.SCALE, '--rel-l2', '0')

    def test_narrow_floats_and_large_integers(self):
        copy = ['--function', 'copy', '--random', '1']
        for name, one, near in (('bf16', 0x3f80, 0x3f81), ('f16', 0x3c00, 0x3c01), ('e4m3', 0x38, 0x39), ('e5m2', 0x3c, 0x3d), ('e8m0', 0x7f, 0x80)):
            raw = '<u2' if name in ('bf16', 'f16') else '|u1'
            step = {'bf16': 2**-7, 'f16': 2**-10, 'e4m3': 2**-3, 'e5m2': 2**-2, 'e8m0': 1}[name]
            self.save('in.npy', np.array([one, near], raw).view(TYPES[name]))
            self.save('e.npy', np.array([one, one], raw).view(TYPES[name]))
            arguments = copy + ['--input', 'in_%s=in.npy' % name, '--expect', 'out_%s=e.npy' % name]
            done = self.check(DIFFERENT, *arguments, '--atol', str(step * 0.99))
            self.assertIn('max abs error %.3g; 1 of 2 elements' % step, done.stdout)
            self.assertIn('first at [1]: %.9g, expected 1' % (1 + step), done.stdout)
            self.check(OK, *arguments, '--atol', str(step))
            self.save('e.npy', np.array([1, 1 + step], '<f4'))
            self.check(OK, *arguments)
        for name, a, b in (('i64', 2**62, 2**62 + 1), ('ui64', 2**64 - 1, 2**64 - 2)):
            self.save('in.npy', np.array([a], TYPES[name]))
            self.save('e.npy', np.array([b], TYPES[name]))
            done = self.check(DIFFERENT, *copy, '--input', 'in_%s=in.npy' % name, '--expect', 'out_%s=e.npy' % name)
            self.assertIn('max abs error 1; 1 of 1 elements', done.stdout)

    def test_misfits(self):
        self.check(FILE, *self.SCALE, error='e.npy: No such file or directory')
        for array, has in ((np.zeros((3, 8), '<i4'), '<i4[3, 8]'), (np.zeros((2, 8), '<f4'), '<f4[2, 8]'), (np.zeros(24, '<f4'), '<f4[24]')):
            self.save('e.npy', array)
            self.check(FILE, *self.SCALE, error="rank 0: e.npy: the file has %s; argument 'y' is f32[3, 8], element type <f4 (or <f4, <f8)" % has)

    def test_ranks_and_several(self):
        expected = self.x.copy()
        for rank in range(3):
            self.save('e%d.npy' % rank, expected + (rank == 1))
        done = self.check(DIFFERENT, *self.SCALE[:6], '--ranks', '3', '--expect', 'y=e{rank}.npy', '--expect', 'x=e{rank}.npy')
        self.assertEqual(re.findall(r'^rank (\d): (\w) (agrees|differs)', done.stdout, re.M),
                         [(rank, name, 'differs' if rank == '1' else 'agrees') for name in 'xy' for rank in '012'])


class Peers(Case):
    """Functions whose ranks talk to each other."""
    EXCHANGE = ['--function', 'init', '--function', 'exchange', '--ranks', '4', '--size', 'C=64', '--size', 'local_experts_plus_1=3']

    def test_exchange(self):
        counts, generator = (3, 0, 1, 16), np.random.default_rng(3)
        ids = [self.save('ids%d.npy' % r, generator.integers(-1, 8, (n, 2)).astype('<i4')) for r, n in enumerate(counts)]
        tokens = [self.save('tokens%d.npy' % r, generator.standard_normal((n, 8)).astype('<f4')) for r, n in enumerate(counts)]
        self.check(OK, *self.EXCHANGE, '--input', 'ids=ids{rank}.npy', '--input', 'tokens=tokens{rank}.npy', '--output', 'rows=rows{rank}.npy',
                   '--output', 'offsets=offsets{rank}.npy')
        for rank in range(4):
            rows = []
            offsets = [0]
            for expert in (2 * rank, 2 * rank + 1):
                rows += [tokens[r][t] for r in range(4) for t in range(counts[r]) for k in range(2) if ids[r][t, k] == expert]
                offsets.append(len(rows))
            np.testing.assert_array_equal(self.load('offsets%d.npy' % rank), offsets)
            received = self.load('rows%d.npy' % rank)
            np.testing.assert_array_equal(received[:len(rows)], np.array(rows, '<f4').reshape(-1, 8))
            np.testing.assert_array_equal(received[len(rows):], 0)  # inout memory starts zeroed

    def test_workspace_of_a_given_size(self):
        done = self.check(RANK, *self.EXCHANGE, '--random', '1', '--size', 'T=1', '--size', 'slab_bytes=64')
        self.assertIn('MOERT_ERROR_WORKSPACE_SIZE', done.stderr)

    def test_symmetric_memory_of_different_sizes(self):
        done = self.check(RANK, *self.EXCHANGE, '--random', '1', '--size', 'T=1', '--size', 'slab_bytes=64,64,128,64')
        self.assertIn('slab: MOERT_ERROR_', done.stderr)

    def test_stop(self):
        """A rank that has stopped sends nothing more; all others say that they waited for it, and for what."""
        for phase, what in (('entry', 'its counts'), ('counts', 'its data'), ('data', 'its data'), ('flag', 'its data')):
            with self.subTest(phase=phase):
                late = ('rank {0}: exchange: MOERT_ERROR_PEER_TIMEOUT (another rank did not arrive before the deadline): moe.dispatch: '
                        'rank {0} waited 1000 ms for rank 2 ({1}, epoch 1)')
                errors = [late.format(rank, what) for rank in range(4)]
                errors[2] = 'rank 2: stopped at moe.dispatch:' + phase
                self.check(RANK, *self.EXCHANGE, '--random', '1', '--size', 'T=4', '--timeout', '1', '--quiet', '--stop', '2@moe.dispatch:' + phase,
                           error=errors, output='')

    def test_stop_that_never_comes(self):
        done = self.check(OK, *self.EXCHANGE, '--random', '1', '--size', 'T=4', '--stop', '2@moe.combine:data',
                          error='warning: rank 2 never came to moe.combine:data')
        self.assertEqual(done.stdout, '')

    def test_timeout_of_the_environment(self):
        done = self.check(RANK, *self.EXCHANGE, '--random', '1', '--size', 'T=4', '--stop', '2@moe.dispatch:entry',
                          environment={'MOERT_TIMEOUT_MS': '200'})
        self.assertIn('MOERT_ERROR_PEER_TIMEOUT', done.stderr)

    def test_error_of_one_rank_ends_the_wait_of_all(self):
        done = self.check(RANK, '--function', 'fail', '--ranks', '3', '--input', 'who=1')
        lines = done.stderr.splitlines()
        self.assertEqual(len(lines), 3)
        self.assertRegex(lines[0], r'\Amoe-run: rank 0: fail: MOERT_ERROR_PEER_FAILED \(another rank reported an error\): rank 1 ')
        self.assertRegex(lines[1], r'\Amoe-run: rank 1: fail: MOERT_ERROR_INVALID_ARGUMENT ')
        self.assertRegex(lines[2], r'\Amoe-run: rank 2: fail: MOERT_ERROR_PEER_FAILED ')

    def test_repeat_that_fails(self):
        done = self.check(RANK, *self.EXCHANGE, '--random', '1', '--size', 'T=4', '--repeat', '3')
        self.assertIn('MOERT_ERROR_INVALID_STATE', done.stderr)  # a second dispatch without a combine
        self.assertEqual(done.stdout, '')


class Processes(Case):
    """Ranks that are processes do what threads do, and say the same."""

    def test_files_and_numbers_of_their_own(self):
        for count in (1, 2, 4):
            x = [self.save('x%d.npy' % rank, self.numbers(rank, 8)) for rank in range(count)]
            self.check(OK, '--processes', '--function', 'scale', '--ranks', str(count), '--input', 'x=x{rank}.npy', '--input', 'factor=2',
                       '--output', 'y=y{rank}.npy', output='')
            for rank in range(count):
                np.testing.assert_array_equal(self.load('y%d.npy' % rank), 2 * x[rank])

    def test_exchange(self):
        exchange = Peers.EXCHANGE + ['--random', '1', '--size', 'T=4,0,1,16', '--timeout', '20']
        generator = np.random.default_rng(3)
        for rank, count in enumerate((4, 0, 1, 16)):
            self.save('ids%d.npy' % rank, generator.integers(-1, 8, (count, 2)).astype('<i4'))
        exchange += ['--input', 'ids=ids{rank}.npy', '--output', 'rows=%s{rank}.npy', '--output', 'offsets=%s{rank}o.npy']
        for name, more in (('thread', []), ('process', ['--processes'])):
            self.check(OK, *[part % name if '%s' in part else part for part in exchange], *more, output='')
        for rank in range(4):
            for suffix in ('.npy', 'o.npy'):
                np.testing.assert_array_equal(self.load('thread%d%s' % (rank, suffix)), self.load('process%d%s' % (rank, suffix)))

    def test_times_and_comparisons_in_the_order_of_ranks(self):
        self.save('x.npy', self.numbers(2, 8))
        for rank in range(3):
            self.save('e%d.npy' % rank, self.load('x.npy') + (rank == 1))
        done = self.check(DIFFERENT, '--function', 'scale', '--input', 'factor=1', '--input', 'x=x.npy', '--ranks', '3', '--processes',
                          '--repeat', '5', '--expect', 'y=e{rank}.npy', error=[])
        lines = done.stdout.splitlines()
        self.assertRegex(lines[0], r'\Ascale: 5 runs on 3 ranks: min \d+\.\d{3} ms, median \d+\.\d{3} ms\Z')
        self.assertEqual([line.split(':')[0] for line in lines[1:]], ['rank 0', 'rank 1', 'rank 2'])
        self.assertIn('y differs from e1.npy', lines[2])

    def test_stop(self):
        late = ('rank {0}: exchange: MOERT_ERROR_PEER_TIMEOUT (another rank did not arrive before the deadline): moe.dispatch: '
                'rank {0} waited 1000 ms for rank 2 (its counts, epoch 1)')
        errors = [late.format(rank) for rank in range(4)]
        errors[2] = 'rank 2: stopped at moe.dispatch:entry'
        self.check(RANK, *Peers.EXCHANGE, '--processes', '--random', '1', '--size', 'T=4', '--timeout', '1', '--quiet', '--stop',
                   '2@moe.dispatch:entry', error=errors, output='')

    def test_error_of_one_rank_ends_the_wait_of_all(self):
        done = self.check(RANK, '--processes', '--function', 'fail', '--ranks', '3', '--input', 'who=1')
        lines = done.stderr.splitlines()
        self.assertEqual(len(lines), 3)
        self.assertRegex(lines[0], r'\Amoe-run: rank 0: fail: MOERT_ERROR_PEER_FAILED \(another rank reported an error\): rank 1 ')
        self.assertRegex(lines[1], r'\Amoe-run: rank 1: fail: MOERT_ERROR_INVALID_ARGUMENT ')
        self.assertRegex(lines[2], r'\Amoe-run: rank 2: fail: MOERT_ERROR_PEER_FAILED ')

    def test_a_process_that_is_killed(self):
        """Its peers say so at once, and nobody writes a file."""
        self.save('x.npy', self.numbers(2, 8))
        done = self.check(RANK, '--processes', '--function', 'scale', '--input', 'factor=1', '--input', 'x=x.npy', '--function', 'die',
                          '--ranks', '3', '--input', 'who=1', '--output', 'y=y{rank}.npy')
        lines = done.stderr.splitlines()
        self.assertEqual(len(lines), 3)
        ended = ('moe-run: rank {0}: die: MOERT_ERROR_PEER_FAILED (another rank reported an error): '
                 'the process of rank 1 has ended while rank {0} waited')
        self.assertIn(ended.format(0), lines[0])
        self.assertEqual(lines[1], 'moe-run: rank 1: its process was ended by signal 9 (Killed)')
        self.assertIn(ended.format(2), lines[2])
        self.assertEqual(os.listdir(self.cwd), ['x.npy'])

    def test_an_error_of_one_keeps_all_from_writing(self):
        self.save('x0.npy', self.numbers(2, 8))
        self.check(FILE, '--processes', '--function', 'scale', '--input', 'factor=1', '--input', 'x=x{rank}.npy', '--ranks', '2',
                   '--output', 'y=y{rank}.npy', error='rank 1: x1.npy: No such file or directory')
        self.assertEqual(os.listdir(self.cwd), ['x0.npy'])

    def test_errors_of_all(self):
        self.check(USAGE, '--processes', '--function', 'nothing', '--ranks', '2',
                   error='all ranks: --function nothing: the graph has no such function; it has scale, add_y, copy, numbers, free_size, '
                   'forget, fail, nap, die, near, count, init, exchange, unknown')
        done = self.check(GRAPH, '--processes', '--ranks', '2', graph='moe-run-graph-abi')
        self.assertRegex(done.stderr, r'\Amoe-run: all ranks: MOERT_ERROR_ABI_VERSION ')

    def test_progress(self):
        nap = ['--processes', '--function', 'nap', '--input', 'milliseconds=1200', '--ranks', '2']
        self.assertRegex(self.run_tool(*nap).stderr, r'\Amoe-run: running 2 processes \.\.\. 1\.\d s\n\Z')
        self.assertEqual(self.run_tool(*nap, '--quiet').stderr, '')


class Device(Case):
    """A device made of host memory, see fake_cuda.c: what moe-run does for a device."""
    NEAR = ['--function', 'near', '--random', '1']

    def run_tool(self, *arguments, graph='moe-run-graph-device', environment=None):
        return super().run_tool(*arguments, graph=graph, environment=dict(environment or {}, LD_LIBRARY_PATH=os.path.join(GRAPHS, 'fake')))

    def test_info(self):
        text = self.check(OK, '--info').stdout
        for line in ('target sm_90a, and host', 'function scale, capturable', 'function init, not capturable',
                     'kernel moe.dispatch/sm_90a/f32,top_k=2: moe.dispatch/sm_90a/generic', 'kernel moe.route/sm_90a/f32,top_k=2: '
                     'moe.route/sm_90a/generic'):
            self.assertIn(line + '\n', text)

    def test_copies(self):
        x = self.save('x.npy', self.numbers(5, 8))
        for backend in ([], ['--backend', 'cuda'], ['--backend', 'host'], ['--devices', '1']):
            self.check(OK, '--function', 'scale', '--input', 'factor=2.5', '--input', 'x=x.npy', '--output', 'y=y.npy', '--output', 'calls=calls.npy',
                       *backend, output='')
            np.testing.assert_array_equal(self.load('y.npy'), x * np.float32(2.5))
            np.testing.assert_array_equal(self.load('calls.npy'), [1])

    def test_poison(self):
        self.check(OK, '--function', 'forget', '--output', 'v=v.npy', '--output', 'w=w.npy')
        self.assertEqual([hex(v) for v in self.load('v.npy').view('<u4')], ['0x80808080'] * 3)
        self.assertEqual([hex(w) for w in self.load('w.npy')], ['0xffff'] * 3)

    def test_exchange(self):
        exchange = Peers.EXCHANGE + ['--random', '1', '--size', 'T=4,0,1,16', '--repeat', '1', '--output', 'slab=slab{rank}.npy']
        for rank, count in enumerate((4, 0, 1, 16)):
            self.save('ids%d.npy' % rank, np.random.default_rng(rank).integers(-1, 8, (count, 2)).astype('<i4'))
        done = self.check(OK, *exchange, '--input', 'ids=ids{rank}.npy', '--check')
        self.assertEqual(re.findall(r'^rank (\d): (\w+) has the bits of the host backend', done.stdout, re.M),
                         [(rank, name) for name in ('rows', 'offsets') for rank in '0123'])  # not metainfo
        self.assertGreater(self.load('slab0.npy').size, 0)

    def test_check(self):
        same = self.check(OK, *self.NEAR, '--input', 'apart=0', '--check')
        self.assertEqual(same.stdout, 'rank 0: y has the bits of the host backend, 4 elements\nrank 0: device has the bits of the host backend, '
                         '1 elements\n')
        self.check(OK, *self.NEAR, '--input', 'apart=0', '--check', '--quiet', output='')
        close = self.check(OK, *self.NEAR, '--input', 'apart=0.001', '--check')
        self.assertRegex(close.stdout, r'\Arank 0: y agrees with the host backend: rel-L2 0\.001, max abs error \d\S*, 4 elements\n')
        far = self.check(DIFFERENT, *self.NEAR, '--input', 'apart=0.1', '--check', error=[])
        self.assertRegex(far.stdout, r'\Arank 0: y differs from the host backend: rel-L2 0\.1, max abs error \S+ '
                         r'\(rel-L2 may be 0\.01\), 4 elements\n')
        self.check(DIFFERENT, *self.NEAR, '--input', 'apart=0.001', '--check', '--rtol', '1e-4', error=[])
        self.check(DIFFERENT, *self.NEAR, '--input', 'apart=0.001', '--check', '--rel-l2', '1e-4', error=[])
        self.check(OK, *self.NEAR, '--input', 'apart=0.1', '--check', '--rel-l2', '0.2')
        self.check(OK, *self.NEAR, '--input', 'apart=0.1', '--check', '--rtol', '0.11')

    def test_check_of_repeated_calls(self):
        done = self.check(OK, '--function', 'count', '--repeat', '5', '--check', '--output', 'n=n.npy')
        self.assertIn('rank 0: n has the bits of the host backend, 2 elements\n', done.stdout)
        np.testing.assert_array_equal(self.load('n.npy'), [5, 5])

    def test_graph(self):
        self.save('n.npy', np.array([40, 2], '<i8'))
        count = ['--function', 'count', '--input', 'n=n.npy', '--output', 'n=after.npy']
        for replays in ('--graph', '--graph=1', '--graph=7'):
            self.check(OK, *count, replays, '--check', output='rank 0: n has the bits of the host backend, 2 elements\n')
            np.testing.assert_array_equal(self.load('after.npy'), [41, 3])
        done = self.check(OK, *count, '--graph', '--repeat', '3')
        self.assertRegex(done.stdout, r'\Areplay of count: 3 runs on 1 rank: min \d+\.\d{3} ms, median \d+\.\d{3} ms\n\Z')
        np.testing.assert_array_equal(self.load('after.npy'), [41, 3])
        done = self.check(OK, '--function', 'init', '--function', 'scale', '--function', 'add_y', '--ranks', '2', '--random', '1', '--size', 'T=4',
                          '--input', 'factor=3', '--graph', '--repeat', '1', '--check', '--output', 'calls=calls{rank}.npy')
        self.assertIn('replay of scale, add_y: 1 run on 2 ranks: ', done.stdout)
        np.testing.assert_array_equal(self.load('calls1.npy'), [1])

    def test_graph_whose_replay_does_nothing(self):
        self.save('x.npy', np.array([1, 2, 3, 4], '<f4'))
        self.check(DIFFERENT, '--function', 'near', '--input', 'x=x.npy', '--input', 'apart=0', '--graph', environment={'FAKE_BROKEN_REPLAY': '1'},
                   error='rank 0: replay 1: y differs from what the call wrote: 4 of 4 elements; first at [0]: -nan, was 1', output='')

    def test_graph_of_nothing(self):
        self.check(USAGE, '--function', 'init', '--graph', error='--graph: none of the functions that run can be captured in a CUDA graph')

    def test_devices(self):
        done = self.check(RANK, *self.NEAR, '--input', 'apart=0', '--devices', '5')
        self.assertRegex(done.stderr, r'\Amoe-run: MOERT_ERROR_NO_DEVICE ')
        self.check(GRAPH, *self.NEAR, '--backend', 'cuda', graph='moe-run-graph',
                   error='--backend cuda: the graph was compiled for target host: compile it with --target=sm_90a')

    def test_an_error_on_the_device(self):
        done = self.check(RANK, '--function', 'fail', '--ranks', '2', '--input', 'who=1', '--check')
        self.assertRegex(done.stderr, r'rank 1: fail: MOERT_ERROR_INVALID_ARGUMENT ')
        self.assertNotIn('host backend', done.stderr)


class Names(Case):
    def test_arguments_of_one_name_and_several_types(self):
        both = ['--function', 'free_size', '--function', 'forget', '--size', 'v.0=1', '--size', 'v.1=2']
        self.check(USAGE, *both, '--output', 'v=v.npy', error='--output v: arguments of several types have this name; write FUNCTION:v')
        self.check(OK, *both, '--output', 'free_size:v=a.npy', '--output', 'forget:v=b.npy')
        np.testing.assert_array_equal(self.load('a.npy'), [[1, 1]])
        self.assertEqual(self.load('b.npy').shape, (3,))

    def test_what_an_earlier_function_writes_is_no_input(self):
        self.check(USAGE, '--function', 'scale', '--function', 'add_y', '--input', 'y=y.npy',
                   error='--input y: the argument is an output; nothing reads it before it is written')


if __name__ == '__main__':
    unittest.main(argv=sys.argv[:1] + sys.argv[4:])
