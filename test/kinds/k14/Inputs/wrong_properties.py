"""Takes every op of graphs in generic form and gives each of its properties values of wrong kinds. Each must be an error at the op, and nothing may crash."""
import re
import subprocess
import sys

WRONG = ['1 : i32', '1 : ui64', '1.0 : f32', '"text "', 'unit', '[]', '[1 : i64]', 'array<i64: 1>', 'array<i32>', 'dense<1> : tensor<1xi64>', '{}', 'i64', '@symbol',
         '#moe.host', 'affine_map<() -> ()>']


def split(text):
    """At commas of the outermost level."""
    parts, depth, quoted = [''], 0, False
    for character in text:
        quoted ^= character == '"'
        depth += 0 if quoted else (character in '([{<') - (character in ')]}>')
        if character == ',' and depth == 0 and not quoted:
            parts.append('')
        else:
            parts[-1] += character
    return [p.strip() for p in parts]


def functions(path):
    """The functions of a graph in generic form, each a list of lines."""
    printed = subprocess.run(['moe-opt', path, '--split-input-file', '--mlir-print-op-generic'], stdout=subprocess.PIPE, text=True, check=True).stdout
    for line in printed.splitlines():
        if line.startswith('  "func.func"'):
            body = []
        if line.startswith('  '):
            body.append(line[2:])
        if line.startswith('  }) : () -> ()'):
            yield body


def mutants(lines):
    for number, line in enumerate(lines):
        match = re.match(r'(.*"(?:moe|ep)\.[^"]*"\(.*?\) <\{)(.*?)(\}> .*)', line)
        for attribute in split(match.group(2)) if match else []:
            name = attribute.split(' = ')[0]
            for value in WRONG:
                wrong = match.group(2).replace(attribute, '%s = %s' % (name, value) if value != 'unit' else name)
                yield name, lines[:number] + [match.group(1) + wrong + match.group(3)] + lines[number + 1:]


cases, text, seen = [], [], set()
for path in sys.argv[1:]:
    for function in functions(path):
        for name, lines in mutants(function):
            op = next(re.search(r'"((?:moe|ep)\.[^"]*)"', new).group(1) for old, new in zip(function, lines) if old != new) if lines != function else None
            change = next((new for old, new in zip(function, lines) if old != new), None)
            if change is None or change in seen:
                continue
            seen.add(change)
            cases.append((len(text) + 1, len(text) + len(lines), op, name))
            text += lines + ['// -----']
result = subprocess.run(['moe-opt', '--split-input-file', '-o', '/dev/null'], input='\n'.join(text), stderr=subprocess.PIPE, text=True)
places = [int(n) for n in re.findall(r'^<stdin>:(\d+):\d+: error:', result.stderr, re.M)]
places += [int(n) for n in re.findall(r'^within split at <stdin>:(\d+) offset :\d+:\d+: error:', result.stderr, re.M)]
silent = [c for c in cases if not any(c[0] - 1 <= place <= c[1] for place in places)]
for _, _, op, name in silent:
    print('no error for a wrong', op, name)
print(len(cases), 'wrong properties of', len({c[2] for c in cases}), 'ops: exit status', result.returncode)
