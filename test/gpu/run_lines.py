#!/usr/bin/env python3
"""Play the RUN lines of the ops' tests, and the examples, with --backend cuda on a machine that has a GPU and no MLIR.

    run_lines.py --prepare DIR --bin BIN [--op NAME]...     where MLIR is: compile what the lines compile, for sm_90a
    run_lines.py --prepared DIR --bin BIN --scratch DIR [--op NAME]... [--ranks N,...] [--quick] [--jobs N]

BIN is the folder of moe-run (and of moe-compile, for --prepare). A line is played as lit would, but that `moe-compile` takes the graph of the
prepared folder and `moe-run` gets --backend cuda; inputs are made, and results checked, by the scripts that the lines name. The examples run with
--check (against the host backend) and --graph (captured and replayed). Every line is PASS, FAIL or SKIP, with the command of failures. Exit status: 1
if something failed.

  --op NAME   only the tests of that op (moe.dispatch), `layers` for the tests of whole layers, or `examples`
  --ranks     only lines of these numbers of ranks
  --quick     of each test the first line that runs its graph, and the examples on 2 ranks
  --backend   host: to try the lines where there is no GPU
"""
import argparse
import concurrent.futures
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import threading
import time

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
TESTS = os.path.join(ROOT, 'test')
LIMIT = 300  # seconds for a command


class Skip(Exception):
    """Why a line is not played."""


class Failure(Exception):
    """What a line has done wrong."""


# --- lines of a test --------------------------------------------------------------------------------------

def raw_lines(path):
    """Keyword, text and number of each line for lit; a line that ends in a backslash goes on."""
    pattern, pending = re.compile(r'\b(RUN|DEFINE|REDEFINE): ?(.*)$'), None
    with open(path) as file:
        for number, line in enumerate(file, 1):
            found = pattern.search(line.rstrip('\n'))
            if not found:
                continue
            keyword, text = found.groups()
            pending = (keyword, text, number) if pending is None else (pending[0], pending[1] + text, pending[2])
            if text.endswith('\\'):
                pending = (pending[0], pending[1][:-1], pending[2])
                continue
            yield pending
            pending = None


def expand(text, substitutions):
    """Until nothing is left to replace; longer names first."""
    names = sorted(substitutions, key=len, reverse=True)
    pattern = re.compile('|'.join(re.escape(name) + ('' if name.endswith('}') else r'(?![\w-])') for name in names))
    while pattern.search(text):
        text = pattern.sub(lambda found: substitutions[found.group(0)], text)
    return text.replace('%%', '%')


def lines_of(path, scratch):
    """The commands of a test: (number of the line, text)."""
    substitutions = {'%s': path, '%S': os.path.dirname(path), '%t': scratch, '%python': sys.executable, '%examples': os.path.join(ROOT, 'examples')}
    for keyword, text, number in raw_lines(path):
        if keyword == 'RUN':
            yield number, expand(text, substitutions)
        else:
            name, value = text.split('=', 1)
            substitutions[name.strip()] = value.strip()


# --- FileCheck, as far as these tests use it ------------------------------------------------------------------

def pattern_of(text, variables):
    """Literal text with {{regular expressions}} and [[VARIABLES]]."""
    parts = re.split(r'(\{\{.*?\}\}|\[\[\w+\]\])', text.strip())
    for index, part in enumerate(parts):
        if part.startswith('{{'):
            parts[index] = '(?:%s)' % part[2:-2]
        elif part.startswith('[['):
            parts[index] = re.escape(variables[part[2:-2]])
        else:
            parts[index] = r'[ \t]+'.join(re.escape(word) for word in re.split(r'[ \t]+', part))
    return re.compile(''.join(parts), re.M)


def directives_of(path, prefix):
    with open(path) as file:
        for line in file:
            found = re.search(r'\b%s(?:-(NEXT|SAME|NOT|EMPTY|LABEL|DAG|COUNT-\d+))?: ?(.*)$' % re.escape(prefix), line.rstrip('\n'))
            if found and not re.search(r'\bRUN:', line):
                yield found.groups()


def file_check(arguments, text):
    """What FileCheck would do with `text`: nothing, or Failure."""
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument('path')
    parser.add_argument('--check-prefix', default='CHECK')
    parser.add_argument('-D', dest='defines', action='append', default=[])
    options = parser.parse_args([re.sub(r'^-check', '--check', argument) for argument in arguments])
    variables = dict(define.split('=', 1) for define in options.defines)
    at, forbidden = 0, []
    for kind, wanted in directives_of(options.path, options.check_prefix):
        pattern = pattern_of(wanted, variables)
        if kind == 'NOT':
            forbidden.append(pattern)
            continue
        if kind in ('EMPTY', 'LABEL', 'DAG'):
            raise Skip('%s-%s is not known here' % (options.check_prefix, kind))
        for _ in range(int(kind.split('-')[1]) if kind and kind.startswith('COUNT') else 1):
            at = match_directive(kind, wanted, pattern, text, at, forbidden)
    if any(pattern.search(text, at) for pattern in forbidden):
        raise Failure('a line that must not be there')


def match_directive(kind, wanted, pattern, text, at, forbidden):
    """The place behind the match."""
    found = pattern.search(text, at)
    between = text[at:found.start()] if found else ''
    if not found or (kind == 'NEXT' and between.count('\n') != 1) or (kind == 'SAME' and '\n' in between):
        raise Failure('not found: ' + wanted)
    if any(other.search(between) for other in forbidden):
        raise Failure('a line that must not be there, before: ' + wanted)
    forbidden.clear()
    return found.end()


# --- programs ---------------------------------------------------------------------------------------------

class Stage:
    """Where graphs come from, and where they run. Programs that call moe-compile and moe-run themselves find scripts on their PATH that do this."""

    def __init__(self, options):
        self.bin, self.backend = os.path.abspath(options.bin), options.backend
        self.preparing = options.prepare is not None
        self.store = os.path.abspath(options.prepare or options.prepared)
        self.scratch = os.path.abspath(options.scratch or os.path.join(self.store, 'scratch'))
        os.makedirs(self.scratch, exist_ok=True)
        library = os.path.join(os.path.dirname(self.bin), 'lib')
        self.environment = dict(os.environ, PYTHONPATH=os.path.join(TESTS, 'oracle'), PYTHONDONTWRITEBYTECODE='1', OPENBLAS_NUM_THREADS='1',
                                MOERT_LIBRARY=os.path.join(library, 'libmoert.so'), PATH=os.pathsep.join([self._scripts(), os.environ['PATH']]))

    def _scripts(self):
        folder = os.path.join(self.scratch, 'bin')
        os.makedirs(folder, exist_ok=True)
        state = json.dumps({'bin': self.bin, 'backend': self.backend, 'preparing': self.preparing, 'store': self.store, 'scratch': self.scratch})
        for name in ('moe-compile', 'moe-run'):
            path = os.path.join(folder, name)
            with open(path, 'w') as file:
                file.write('#!/bin/sh\nexec %s %s --as %s %s "$@"\n' % (
                    shlex.quote(sys.executable), shlex.quote(os.path.abspath(__file__)), name, shlex.quote(state)))
            os.chmod(path, 0o755)
        return folder

    @classmethod
    def of_state(cls, state):
        made = cls.__new__(cls)
        made.__dict__.update(json.loads(state))
        return made

    def compile(self, arguments):
        """What a shell would run in place of moe-compile ARGUMENTS."""
        graph = arguments[arguments.index('-o') + 1]
        kept = os.path.join(self.store, os.path.relpath(graph, self.scratch))
        os.makedirs(os.path.dirname(kept), exist_ok=True)
        os.makedirs(os.path.dirname(graph), exist_ok=True)
        if not self.preparing:
            return ['cp', kept, graph]
        if any(argument.startswith('--target') for argument in arguments):
            raise Skip('the line names a target')
        script = 'graph=$1 kept=$2; shift 2; "$@" && cp "$graph" "$kept"'
        return ['sh', '-c', script, 'sh', graph, kept, os.path.join(self.bin, 'moe-compile'), *arguments, '--target=sm_90a']

    def run(self, arguments):
        return [os.path.join(self.bin, 'moe-run'), *arguments, '--backend', self.backend]

    def command(self, words):
        programs = {'moe-compile': self.compile, 'moe-run': self.run}
        name = words[0]
        if name in programs:
            return programs[name](words[1:])
        if name in (sys.executable, 'cmp', 'diff', 'cp', 'mkdir', 'rm'):
            return words
        raise Skip('%s is not known here' % name)


# --- playing ------------------------------------------------------------------------------------------------

def split_pipe(text):
    """The commands of a pipeline, and whether stderr goes with it."""
    words, commands = shlex.split(text), [[]]
    for word in words:
        if word == '|':
            commands.append([])
        elif word != '2>&1':
            commands[-1].append(word)
    if any(re.fullmatch(r'[<>;&]+|\|\|', word) for word in words if word != '2>&1'):
        raise Skip('a line with redirections')
    return commands, '2>&1' in words


def play_command(stage, text, output):
    """One pipeline: a program, and FileCheck if there is one."""
    (first, *others), with_errors = split_pipe(text)
    expect_failure = first[0] == 'not'
    command = stage.command(first[1:] if expect_failure else first)
    errors = subprocess.STDOUT if with_errors else subprocess.PIPE
    done = subprocess.run(command, env=stage.environment, stdout=subprocess.PIPE, stderr=errors, text=True, timeout=LIMIT, check=False)
    output.append(done.stdout + (done.stderr or ''))
    if done.returncode < 0:
        raise Failure('ended by signal %d' % -done.returncode)
    if (done.returncode != 0) != expect_failure:
        raise Failure('exit status %d' % done.returncode)
    for other in others:
        if other[0] != 'FileCheck':
            raise Skip('%s is not known here' % other[0])
        file_check(other[1:], done.stdout)


def ranks_of(text):
    found = re.search(r'--ranks[ =](\d+)', text)
    return int(found.group(1)) if found else 1


class Report:
    """Results as they come; one line each."""

    def __init__(self):
        self.lock, self.counts = threading.Lock(), {'PASS': 0, 'FAIL': 0, 'SKIP': 0}

    def add(self, verdict, name, seconds=0.0, why='', text='', output=''):
        with self.lock:
            self.counts[verdict] += 1
            print('%s %s%s%s' % (verdict, name, ' (%.1f s)' % seconds if seconds else '', ': ' + why if why else ''))
            if verdict == 'FAIL':
                print('     %s' % text)
                print(''.join('     | %s\n' % line for line in output.splitlines()[-30:]), end='')
            sys.stdout.flush()


def play_line(stage, report, name, text):
    begun, output = time.monotonic(), []
    try:
        for command in text.split(' && '):
            play_command(stage, command, output)
        report.add('PASS', name, time.monotonic() - begun)
        return True
    except Skip as why:
        report.add('SKIP', name, 0, str(why))
    except (Failure, subprocess.TimeoutExpired, OSError) as why:
        report.add('FAIL', name, time.monotonic() - begun, str(why), text, ''.join(output))
    return False


def is_wanted(options, text, runs):
    """`runs`: how many lines that run the graph were played before."""
    if 'moe-run' not in text.split():
        return True
    return not (options.ranks and ranks_of(text) not in options.ranks) and not (options.quick and runs > 0)


def play_test(options, stage, report, path, name):
    """A line that makes what later lines need, and fails, ends the test."""
    scratch = os.path.join(stage.scratch, 'ops', os.path.splitext(name)[0])
    shutil.rmtree(os.path.dirname(scratch), ignore_errors=True)
    os.makedirs(os.path.dirname(scratch))
    left_out, runs = False, 0  # whether a run was whose results a later line may check
    for number, text in lines_of(path, scratch):
        commands = text.split(' && ')
        if stage.preparing:  # what runs a graph waits for the GPU; what checks results does too
            text = ' && '.join(command for command in commands if is_preparation(command))
        wanted, runs_it = is_wanted(options, text, runs), 'moe-run' in text.split()
        left_out = left_out or not wanted
        if not text or not wanted or (left_out and not runs_it):
            continue
        runs += runs_it
        played = play_line(stage, report, '%s:%d' % (name, number), text)
        if not played and not runs_it:
            return


def is_preparation(command):
    """Compiles a graph, or makes what is compiled; a test that compiles by itself does all."""
    words = command.split()
    return words[0] == 'moe-compile' or 'execute.py' in command or 'skip_mode_layer.py' in command


# --- examples -------------------------------------------------------------------------------------------------

def layer_command(stage, graph, data, ranks, more):
    with open(os.path.join(data, 'numbers.json')) as file:
        numbers = json.load(file)
    inputs = ['tokens=%s/tokens.{rank}.npy', 'router=%s/router.npy', 'gate_up=%s/gate_up.{rank}.npy', 'down=%s/down.{rank}.npy']
    words = ['moe-run', os.path.join(stage.scratch, 'examples', graph + '.so'), '--ranks', str(ranks), '--function', 'setup', '--function', 'layer']
    for item in inputs:
        words += ['--input', item % data]
    for name in ('max_tokens', 'capacity'):
        words += ['--input', '%s=%d' % (name, numbers[name])]
    return words + ['--output', 'out=%s/%s.{rank}.npy' % (data, graph)] + more


def dense_command(stage, data):
    words = ['moe-run', os.path.join(stage.scratch, 'examples', 'moe_layer_dense.so'), '--function', 'layer', '--output', 'out=%s/dense.npy' % data]
    for item in ('tokens=%s/tokens.full.npy', 'router=%s/router.npy', 'gate_up=%s/gate_up.full.npy', 'down=%s/down.full.npy'):
        words += ['--input', item % data]
    return words


def data_of(stage, ranks):
    return os.path.join(stage.scratch, 'examples', str(ranks))


def make_inputs(stage, report, ranks):
    words = [sys.executable, os.path.join(ROOT, 'examples', 'make_inputs.py'), '--text', os.path.join(ROOT, 'README.md'), '--ranks', str(ranks),
             '--out', data_of(stage, ranks)]
    return play_line(stage, report, 'examples: inputs of %d ranks' % ranks, shlex.join(words))


def play_layer(stage, report, graph, ranks, more, note=''):
    """The layer, and what it gave against the dense form."""
    data = data_of(stage, ranks)
    compare = [sys.executable, os.path.join(ROOT, 'examples', 'compare.py'), '--ranks', str(ranks), '--want', data + '/dense.npy', '--bound', '0.01',
               '--got', '%s/%s.{rank}.npy' % (data, graph)]
    words = layer_command(stage, graph, data, ranks, more)
    play_line(stage, report, 'examples: %s on %d ranks%s' % (graph, ranks, note), shlex.join(words) + ' && ' + shlex.join(compare))


def play_layers(options, stage, report, ranks):
    """The layer in its forms on one number of ranks: against the dense form and the host, captured, and as processes. The host takes long for experts
    in linalg: once must do."""
    captured, checked = (['--graph', '--repeat', '10'], ['--check']) if options.backend == 'cuda' else ([], [])
    play_line(stage, report, 'examples: dense layer for %d ranks' % ranks, shlex.join(dense_command(stage, data_of(stage, ranks))))
    play_layer(stage, report, 'moe_layer', ranks, checked + captured)
    play_layer(stage, report, 'moe_layer_linalg', ranks, (checked if ranks == 2 else []) + captured)
    play_layer(stage, report, 'moe_layer', ranks, ['--processes'], ' as processes')


def skip_mode_command(stage, more):
    sizes = ['T=13', 'L=4', 'C=360', 'W=4']
    words = ['moe-run', os.path.join(stage.scratch, 'examples', 'skip_mode_layer.so'), '--ranks', '4', '--function', 'setup', '--function', 'layer']
    return words + [word for size in sizes for word in ('--size', size)] + ['--random', '1'] + more


def compile_examples(stage, report):
    for name in sorted(os.listdir(os.path.join(ROOT, 'examples'))):
        if name.endswith('.mlir'):
            graph = os.path.join(stage.scratch, 'examples', name[:-5] + '.so')
            play_line(stage, report, 'examples: ' + name, shlex.join(['moe-compile', os.path.join(ROOT, 'examples', name), '-o', graph]))


def play_examples(options, stage, report):
    compile_examples(stage, report)
    if stage.preparing:
        return
    sizes = options.ranks or ([2] if options.quick else [1, 2, 4])
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        made = list(pool.map(lambda ranks: make_inputs(stage, report, ranks), sizes))
    for ranks in [ranks for ranks, good in zip(sizes, made) if good]:
        play_layers(options, stage, report, ranks)
    if options.backend == 'cuda' and not (options.ranks or options.quick):
        play_line(stage, report, 'examples: skip_mode_layer on 4 ranks', shlex.join(skip_mode_command(stage, ['--check', '--graph'])))


# --- command line -----------------------------------------------------------------------------------------------

def tests_of(options):
    """(path, name) of each test."""
    found = []
    for dialect in sorted(os.listdir(os.path.join(TESTS, 'ops'))):
        for op in sorted(os.listdir(os.path.join(TESTS, 'ops', dialect))):
            path = os.path.join(TESTS, 'ops', dialect, op, 'execute.mlir')
            if os.path.exists(path) and (not options.op or '%s.%s' % (dialect, op.replace('_skip_', '.skip_')) in options.op):
                found.append((path, os.path.relpath(path, os.path.join(TESTS, 'ops'))))
    if 'layers' in options.op or not (options.op or options.quick):
        found.append((os.path.join(TESTS, 'ops', 'ep', 'skip-mode-layer.test'), os.path.join('ep', 'skip_mode_layer', 'skip-mode-layer.test')))
    return found


def parse(arguments):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--prepare', metavar='DIR')
    parser.add_argument('--prepared', metavar='DIR')
    parser.add_argument('--bin', required=True)
    parser.add_argument('--scratch')
    parser.add_argument('--op', action='append', default=[])
    parser.add_argument('--ranks', type=lambda text: [int(part) for part in text.split(',')], default=[])
    parser.add_argument('--quick', action='store_true')
    parser.add_argument('--jobs', type=int, default=1)
    parser.add_argument('--backend', choices=['cuda', 'host'], default='cuda')
    options = parser.parse_args(arguments)
    if (options.prepare is None) == (options.prepared is None):
        parser.error('one of --prepare and --prepared is needed')
    if options.prepare:
        options.backend = 'host'  # what must run to prepare runs there
    return options


def main():
    if sys.argv[1:2] == ['--as']:
        name, state, *arguments = sys.argv[2:]
        stage = Stage.of_state(state)
        command = stage.command([name, *arguments])
        os.execvp(command[0], command)
    options = parse(sys.argv[1:])
    stage, report = Stage(options), Report()
    tasks = [(play_test, options, stage, report, *test) for test in tests_of(options)]
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        for task in [pool.submit(*task) for task in tasks]:
            task.result()
    if not options.op or 'examples' in options.op:
        play_examples(options, stage, report)
    if stage.preparing:
        shutil.rmtree(stage.scratch)
    counts = report.counts
    print('%d cases: %d passed, %d failed, %d skipped' % (sum(counts.values()), counts['PASS'], counts['FAIL'], counts['SKIP']))
    return 1 if counts['FAIL'] else 0


if __name__ == '__main__':
    sys.exit(main())
