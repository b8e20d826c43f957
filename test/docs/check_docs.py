#!/usr/bin/env python3
"""Check that the documentation agrees with the repository.

    check_docs.py ROOT TD.json [TD.json ...]

Prints a line for each disagreement, and fails if there is one.
"""
import json
import os
import re
import sys

root = os.path.abspath(sys.argv[1])
jsons = sys.argv[2:]
sys.path.insert(0, os.path.join(root, 'cmake'))
import generate  # noqa: E402
import op_manual  # noqa: E402

TICK, NONE, INAPPLICABLE = 'yes', 'no', 'none needed'

# Columns of docs/status.md: where the thing is, if it is there. {dialect}, {name} and {id} are the op's.
COLUMNS = {
    'ODS': 'ops/{dialect}/{dialect}.td',
    'verifier and lowering': 'ops/{dialect}/{name}.c',
    'host reference': 'lib/reference/{id}.c',
    'NumPy oracle': None,  # one program may be the oracle of several ops
    'round-trip': 'test/ops/{dialect}/{name}/round-trip.mlir',
    'errors': 'test/ops/{dialect}/{name}/errors.mlir',
    'bufferize': 'test/ops/{dialect}/{name}/bufferize.mlir',
    'lower': 'test/ops/{dialect}/{name}/lower.mlir',
    'execute': 'test/ops/{dialect}/{name}/execute.*',
    'CUDA': 'kernels/{id}/launch.cu',
}

complaints = []


def complain(where, text):
    complaints.append('%s: %s' % (where, text))


def read(path):
    with open(os.path.join(root, path)) as f:
        return f.read()


def cells_of(line):
    return [cell.strip() for cell in line.strip().strip('|').split('|')]


def link_in(cell):
    match = re.fullmatch(r'\[%s\]\(\.\./([^)#]+)\)' % TICK, cell)
    return match and match.group(1)


def names_of(op):
    """Its dialect, and its name in the names of files."""
    dialect, name = op.name.split('.', 1)
    return dialect, name.replace('.', '_')


def present(pattern, op):
    """The file that a column's pattern stands for, or None."""
    dialect, name = names_of(op)
    path = pattern.format(dialect=dialect, name=name, id=op.id)
    folder, file = os.path.split(path)
    if not file.endswith('*'):
        return path if os.path.exists(os.path.join(root, path)) else None
    found = os.listdir(os.path.join(root, folder)) if os.path.isdir(os.path.join(root, folder)) else []
    return next((os.path.join(folder, f) for f in sorted(found) if f.startswith(file[:-1])), None)


def check_cell(op, column, cell):
    pattern = COLUMNS[column]
    linked = link_in(cell)
    if linked is None and cell not in (NONE, INAPPLICABLE):
        return complain('docs/status.md', "%s, column '%s': '%s' is not a link '[%s](../...)', '%s' or '%s'" % (op.name, column, cell, TICK, NONE, INAPPLICABLE))
    if linked and not os.path.exists(os.path.join(root, linked)):
        return complain('docs/status.md', "%s, column '%s': there is no file %s" % (op.name, column, linked))
    there = pattern and present(pattern, op)
    if pattern and there and linked != there:
        complain('docs/status.md', "%s, column '%s': %s exists, so the cell must be [%s](../%s)" % (op.name, column, there, TICK, there))
    if pattern and linked and not there:
        complain('docs/status.md', "%s, column '%s': %s is not the op's file" % (op.name, column, linked))


def check_status(ops):
    rows = [cells_of(line) for line in read('docs/status.md').splitlines() if line.startswith('|')]
    head, table = rows[0], {row[0].strip('`'): row for row in rows[2:]}
    if head != ['op'] + list(COLUMNS):
        return complain('docs/status.md', 'the columns must be: op, %s' % ', '.join(COLUMNS))
    for name in sorted(set(table) - {op.name for op in ops}):
        complain('docs/status.md', 'no .td has an op %s' % name)
    for op in ops:
        if op.name not in table:
            complain('docs/status.md', 'has no row for %s' % op.name)
            continue
        for column, cell in zip(COLUMNS, table[op.name][1:]):
            check_cell(op, column, cell)


def check_readme(ops):
    """The table of what is supported has all ops."""
    listed = set(re.findall(r'^\| `(\w+\.[\w.]+)`', read('README.md'), flags=re.M))
    for name in sorted({op.name for op in ops} ^ listed):
        complain('README.md', 'no .td has an op %s' % name if name in listed else 'the table of what is supported has no row for %s' % name)


def markdown_files():
    for folder, folders, files in os.walk(root):
        folders[:] = [f for f in folders if not f.startswith(('.', 'build')) and not os.path.islink(os.path.join(folder, f))]
        yield from (os.path.relpath(os.path.join(folder, f), root) for f in files if f.endswith('.md'))


def without_code(text):
    return re.sub(r'^```.*?^```', '', text, flags=re.S | re.M)


def anchors_of(text):
    """The anchors that GitHub gives to headings."""
    headings = re.findall(r'^#+ (.+)$', without_code(text), flags=re.M)
    return {re.sub(r'[^\w\- ]', '', heading.lower()).replace(' ', '-') for heading in headings}


def check_links():
    for file in markdown_files():
        for target in re.findall(r'\]\(([^)\s]+)\)', without_code(read(file))):
            if re.match(r'\w+:', target):
                continue
            path, _, anchor = target.partition('#')
            path = os.path.normpath(os.path.join(os.path.dirname(file), path)) if path else file
            if path.startswith('..') or not os.path.exists(os.path.join(root, path)):
                complain(file, 'link to %s, which does not exist' % target)
            elif anchor and path.endswith('.md') and anchor not in anchors_of(read(path)):
                complain(file, 'link to %s, but %s has no such heading' % (target, path))


def descriptions():
    """Of the ops, by identifier."""
    found = {}
    for path in jsons:
        with open(path) as f:
            found.update((r['identifier'], r['description']) for r in json.load(f).values() if isinstance(r, dict) and 'identifier' in r)
    return found


def check_constraints(ops):
    """Every constraint of a description has a negative test that is named after it, and the tests name no other."""
    texts = descriptions()
    for op in ops:
        dialect, name = names_of(op)
        path = 'test/ops/%s/%s/errors.mlir' % (dialect, name)
        labels = set(re.findall(r'^\s*- C(\d+):', texts[op.id], flags=re.M))
        if not os.path.exists(os.path.join(root, path)):
            if labels:
                complain(path, 'does not exist, but %s has constraints: %s' % (op.name, ', '.join('C' + n for n in sorted(labels, key=int))))
            continue
        tested = set(re.findall(r'@%s_c(\d+)(?!\d)' % re.escape(name), read(path)))
        for number in sorted(labels - tested, key=int):
            complain(path, 'has no function @%s_c%s..., a negative test of C%s' % (name, number, number))
        for number in sorted(tested - labels, key=int):
            complain(path, '@%s_c%s... tests C%s, which the description of %s does not have' % (name, number, number, op.name))


def check_errors():
    """docs/errors.md has every status of moert.h with its number, and every constraint of all ops."""
    text = read('docs/errors.md')
    for name, value in re.findall(r'X\((MOERT_\w+), (\d+),', read('include/moert/moert.h')):
        if not re.search(r'^\| `%s` \| %s \|' % (name, value), text, flags=re.M):
            complain('docs/errors.md', 'has no row | `%s` | %s |' % (name, value))
    for label in sorted(set(re.findall(r'^// (S\d+):', read('lib/ir/ops.c'), flags=re.M))):
        if not re.search(r'^- \*\*%s\*\*' % label, text, flags=re.M):
            complain('docs/errors.md', 'does not describe %s of lib/ir/ops.c' % label)


def check_versions():
    """docs/install.md names the versions that the sources have."""
    abi = re.search(r'^#define MOERT_ABI_VERSION (\d+)', read('include/moert/moert.h'), flags=re.M).group(1)
    dialect = re.search(r'^#define MOE_MLIR_DIALECT_VERSION (\d+)', read('include/moe-mlir-c/MoeMlir.h'), flags=re.M).group(1)
    for what, version in (('library', read('VERSION').strip()), ('ABI', abi), ('dialect', dialect)):
        if '| %s, `%s` |' % (what, version) not in read('docs/install.md'):
            complain('docs/install.md', 'the table of versions has no row | %s, `%s` |' % (what, version))


def check_manual():
    if read('docs/ops.md') != op_manual.manual(jsons):
        complain('docs/ops.md', 'differs from the .td: build the target op-manual')


def main():
    ops = generate.load(jsons)
    check_status(ops)
    check_readme(ops)
    check_links()
    check_constraints(ops)
    check_errors()
    check_versions()
    check_manual()
    print('\n'.join(complaints) if complaints else 'docs: OK')
    sys.exit(1 if complaints else 0)


if __name__ == '__main__':
    main()
