"""Runs each pass of the pipeline on its own, each in a process that has loaded only what its input needs: with threads, without, and printing the module
after it. All must agree, and the last result be that of the whole pipeline."""
import re
import subprocess
import sys

FUNCTION = '''func.func @f%d(%%logits: tensor<?x8xf32>, %%x: tensor<?x16xbf16>, %%w: tensor<8x16x16xbf16>, %%offsets: tensor<9xi32>, %%ids: tensor<?x2xi32>,
    %%weights: tensor<?x2xf32>, %%out: tensor<?x16xf32>, %%ctx: !moe.context) -> (tensor<?x2xi32>, tensor<?x2xf32>, tensor<?x16xf32>) {
  %%0:2 = moe.route logits(%%logits : tensor<?x8xf32>) outs(%%ids, %%weights : tensor<?x2xi32>, tensor<?x2xf32>) context(%%ctx)
    {top_k = 2 : i64, n_experts = 8 : i64} -> tensor<?x2xi32>, tensor<?x2xf32>
  %%c0 = arith.constant 0 : index
  %%n = tensor.dim %%x, %%c0 : tensor<?x16xbf16>
  %%empty = tensor.empty(%%n) : tensor<?x16xf32>
  %%1 = moe.grouped_matmul rows(%%x : tensor<?x16xbf16>) offsets(%%offsets : tensor<9xi32>) weights(%%w : tensor<8x16x16xbf16>)
    outs(%%empty : tensor<?x16xf32>) context(%%ctx) -> tensor<?x16xf32>
  %%2 = linalg.exp ins(%%1 : tensor<?x16xf32>) outs(%%out : tensor<?x16xf32>) -> tensor<?x16xf32>
  return %%0#0, %%0#1, %%2 : tensor<?x2xi32>, tensor<?x2xf32>, tensor<?x16xf32>
}
'''
NUM_FUNCTIONS = 8


def split(pipeline):
    """The passes of builtin.module(...): commas at the outermost level."""
    inside = re.fullmatch(r'builtin\.module\((.*)\)', pipeline).group(1)
    passes, depth = [''], 0
    for character in inside:
        depth += (character in '({') - (character in ')}')
        if character == ',' and depth == 0:
            passes.append('')
        else:
            passes[-1] += character
    return passes


def run(text, passes, *options):
    return subprocess.run(['moe-opt', '--pass-pipeline=builtin.module(%s)' % passes, *options], input=text, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


pipeline = subprocess.run(['moe-compile', '--print-pipeline'], stdout=subprocess.PIPE, text=True, check=True).stdout.strip()
start = text = ''.join(FUNCTION % i for i in range(NUM_FUNCTIONS))
for name in split(pipeline):
    threads, alone = run(text, name), run(text, name, '--mlir-disable-threading')
    printed = run(text, name, '--mlir-disable-threading', '--mlir-print-ir-after-all', '--mlir-print-ir-module-scope')
    for result in threads, alone, printed:
        if result.returncode:
            sys.exit('%s: exit status %d\n%s' % (name, result.returncode, result.stderr))
    if not threads.stdout == alone.stdout == printed.stdout:
        sys.exit('%s: results differ' % name)
    if 'IR Dump After' not in printed.stderr:
        sys.exit('%s: nothing printed' % name)
    text = threads.stdout
    print(name)
whole = run(start, ','.join(split(pipeline)))
sys.exit(0 if whole.stdout == text else 'the whole pipeline gives something else')
