#!/usr/bin/env python3
"""Generate what follows from the .td of the dialects.

    generate.py WHAT OUTPUT TD.json [TD.json ...]

WHAT is one of
    ops.h        the C API of the ops: parameter and argument structs, functions      (include/moert/ops.h)
    host.h       indices of the ops, the functions of the host backend                (lib/runtime/internal.h)
    cuda_ops.h   the functions of the CUDA backend                                    (kernels/common/launch.cuh)
    cuda_ops.inc the table of them                                                    (lib/cuda/backend.c)
    runtime.inc  descriptors of the operands and the functions' definitions           (lib/runtime/ops.c)
    ir.h, ir.c   descriptors that verifiers, bufferization and lowering share         (lib/ir/ops.h)
    capi.h       the C API of the ops for compilers: structs and builders             (include/moe-mlir-c/Ops.h)
    capi.inc     its tables, and the builders' definitions                            (lib/ir/capi.c)
The .json come from `llvm-tblgen --dump-json`.
"""
import json
import re
import sys


def require(holds, what, text):
    """What would otherwise be generated silently, and wrong."""
    if not holds:
        sys.exit('generate.py: %s: %s' % (what, text))


class Operand:
    def __init__(self, records, definition, name, op):
        record = records[definition]
        self.name = name
        self.optional = 'Optional' in record['!superclasses']
        self.variadic = 'Variadic' in record['!superclasses']
        base = record['baseType']['def'] if self.optional or self.variadic else definition
        record = records[base]
        self.memory = record.get('memory', 'value')
        self.buffer = 'Moe_Buffer' in record['!superclasses'] or 'Moe_State' in record['!superclasses']
        self.state = 'Moe_State' in record['!superclasses']
        self.rank = record.get('rank', -1)
        self.dtypes = [t['def'] for t in record.get('elementTypes', [])]
        self.what = record.get('summary', '')
        self.destination = name in op['destinations']
        self.kept = name in op['kept']
        self.observed = name in op['observed']
        self.strided = name in op['strided']
        self.in_place = dict(pair.split('=') for pair in op['inPlace']).get(name)  # the input whose memory a destination may be
        self.since = int(dict(pair.split('=') for pair in op['since']).get(name, 1))  # version of the dialect
        self.extent = self.variadic and not self.buffer  # the dynamic sizes of a result: compile side only
        require(self.buffer or self.memory == 'context' or base in ('Moe_Count', 'I64', 'Index'), '%s.%s' % (op['identifier'], name),
                'an operand is a Moe_Buffer, a Moe_State, Moe_Count, I64, Variadic<Index> or Moe_Context, not ' + base)

    def kind(self):
        if self.memory == 'context':
            return 'CONTEXT'
        if self.destination:
            return 'DESTINATION'
        if self.state:
            return 'STATE'
        if self.extent:
            return 'EXTENT'
        return 'INPUT' if self.buffer else 'VALUE'


class Attribute:
    def __init__(self, records, definition, name, op):
        record = records[definition]
        self.name = name
        self.only_for = dict(pair.split('=') for pair in op['onlyFor']).get(name)  # the destination that alone depends on it
        self.default = None
        if 'DefaultValuedAttr' in record['!superclasses']:
            self.default = record['defaultValue']
            record = records[record['baseAttr']['def']]
        self.cases = record.get('cases', [])
        self.minimum, self.maximum = record.get('minimum', 0), record.get('maximum', 0)
        name = record['!name']
        self.kind = 'ENUM' if self.cases else 'BOOL' if name == 'BoolAttr' else 'FLOAT' if name == 'Moe_Float' else 'INT'
        require(self.kind != 'INT' or 'Moe_Int' in record['!superclasses'], self.name,
                'an attribute is a Moe_Int, a Moe_OneOf, BoolAttr or Moe_Float, not ' + name)

    def c_type(self):
        return 'double' if self.kind == 'FLOAT' else 'int64_t'

    def c_default(self):
        if self.default is None:
            return '0'
        if self.kind == 'ENUM':
            return str(self.cases.index(self.default.strip('"')))
        return {'true': '1', 'false': '0'}.get(self.default, self.default)


class Op:
    def __init__(self, records, record):
        dialect = records[record['opDialect']['def']]['name']
        self.name = dialect + '.' + record['opName']
        self.id = record['identifier']
        self.summary = record['summary']
        self.fabric, self.runtime, self.idempotent, self.kernel, self.canonicalizes = (
            record[bit] for bit in ('fabric', 'runtime', 'idempotent', 'kernel', 'canonicalizes'))
        self.scalar = record['scalar']
        self.operands, self.attributes = [], []
        for argument, name in record['arguments']['args']:
            if 'Attr' in records[argument['def']]['!superclasses']:
                self.attributes.append(Attribute(records, argument['def'], name, record))
            else:
                self.operands.append(Operand(records, argument['def'], name, record))

        results = {name: result['def'] for result, name in record['results']['args']}
        self.check_names(record, results)
        given = not re.fullmatch(r'Index|[IF]\d+', results.get(self.scalar, ''))
        self.scalar_type = None if given else results[self.scalar].lower()  # None: the builder is told, as for a view
        regions = [(name, 'VariadicRegion' in records[region['def']]['!superclasses']) for region, name in record['regions']['args']]
        self.region, self.region_optional = regions[0] if regions else (None, False)
        self.segments = any(trait['def'] == 'AttrSizedOperandSegments' for trait in record['traits'])

    def check_names(self, record, results):
        """A misspelt name in a list of the .td would be a property that no operand has."""
        names = {o.name for o in self.operands}
        pairs = [name for pair in record['inPlace'] for name in pair.split('=')]
        since = [pair.split('=')[0] for pair in record['since']]
        for field, listed in (('destinations', record['destinations']), ('kept', record['kept']), ('inPlace', pairs), ('observed', record['observed']),
                              ('strided', record['strided']), ('since', since)):
            for name in listed:
                require(name in names, self.name, "'%s' of %s is no operand" % (name, field))
        destinations = [o.destination for o in self.operands]
        first, count = destinations.index(True) if any(destinations) else 0, sum(destinations)
        require(all(destinations[first:first + count]), self.name, 'destinations stand together')
        require(all(o.destination for o in self.operands if o.kept or o.in_place), self.name, 'kept and inPlace are about destinations')
        require(all(o.state for o in self.operands if o.observed), self.name, 'observed is about states')
        require(all(o.rank == 2 for o in self.operands if o.strided), self.name, 'strided is about matrices')
        require(all(o.optional for o in self.operands if o.since > 1), self.name, 'since is about optional operands')
        defaults = {a.name for a in self.attributes if a.default is not None}
        for parameter, destination in (pair.split('=') for pair in record['onlyFor']):
            require(parameter in defaults, self.name, "'%s' of onlyFor is no parameter that has a default" % parameter)
            require(destination in record['destinations'], self.name, "'%s' of onlyFor is no destination" % destination)
        require('Moe_EpilogueOp' not in record['!superclasses'] or 'has_epilogue_fusion' in defaults, self.name,
                'an op with an epilogue has the parameter has_epilogue_fusion')
        require(not self.scalar or self.scalar in results, self.name, "the scalar '%s' is no result" % self.scalar)

    def passed(self):
        """The operands that reach the runtime function, but for the context, which is its last parameter."""
        return [o for o in self.operands if o.kind() not in ('CONTEXT', 'EXTENT')]


def load(paths):
    ops = []
    for path in paths:
        with open(path) as file:
            records = json.load(file)
        ops += [Op(records, r) for r in records.values() if isinstance(r, dict) and 'Moe_Op' in r.get('!superclasses', [])]
    return sorted(ops, key=lambda op: op.name)


def banner(text):
    return '/* Generated by cmake/generate.py from the .td of the dialects: %s. */\n' % text


# --- include/moert/ops.h ------------------------------------------------------------------------------

def ops_h(ops):
    out = [banner('one function per op'), '''#ifndef MOERT_OPS_H
#define MOERT_OPS_H

#include <moert/moert.h>

#ifdef __cplusplus
extern "C" {
#endif

/* An op's function takes its static parameters, its operands, a kernel (NULL: the library's choice) and the context. The op manual (docs/ops.md)
 * says what each means. Optional operands are NULL when absent, numbers 0. Operands named as destinations there are written. */
''']
    for op in ops:
        if not op.runtime:
            continue
        out.append('/*===--- %s: %s. %s */\n' % (op.name, op.summary, 'Collective' if op.fabric else 'Local'))
        for a in op.attributes:
            if a.cases:
                names = ['MOERT_%s_%s_%s = %d' % (op.id.upper(), a.name.upper(), c.upper(), i) for i, c in enumerate(a.cases)]
                out.append('enum { %s };' % ', '.join(names))
        out.append('typedef struct moert_%s_params {\n  size_t struct_size;' % op.id)
        for a in op.attributes:
            note = 'one of MOERT_%s_%s_...' % (op.id.upper(), a.name.upper()) if a.cases else \
                   '0 or 1' if a.kind == 'BOOL' else '%d to %d' % (a.minimum, a.maximum) if a.kind == 'INT' else 'finite'
            out.append('  %s %s; /* %s */' % (a.c_type(), a.name, note))
        out.append('} moert_%s_params;' % op.id)
        out.append('#define MOERT_%s_PARAMS_INIT {%s}\n' % (op.id.upper(), ', '.join(
            ['sizeof(moert_%s_params)' % op.id] + [a.c_default() for a in op.attributes])))
        out.append('typedef struct moert_%s_args {\n  size_t struct_size;' % op.id)
        initial = ['sizeof(moert_%s_args)' % op.id]
        for o in op.passed():
            note = ' /* %s%s%s */' % ('optional ' if o.optional else '', 'destination: ' if o.destination else '', o.what.replace('tensor or memref', 'tensor'))
            if o.variadic:
                out.append('  int64_t num_%s;' % o.name)
                initial.append('0')
            note = note if o.buffer else ' /* optional: 0 if absent */' if o.optional else ''
            out.append('  %s%s;%s' % ('const moert_tensor *' if o.buffer else 'int64_t ', o.name, note))
            initial.append('NULL' if o.buffer else '0')
        if op.scalar:
            out.append('  %s *%s; /* result */' % ('moert_tensor' if op.scalar == 'view' else 'int64_t', op.scalar))
            initial.append('NULL')
        out.append('} moert_%s_args;' % op.id)
        out.append('#define MOERT_%s_ARGS_INIT {%s}\n' % (op.id.upper(), ', '.join(initial)))
        out.append('MOERT_API moert_status moert_%s(const moert_%s_params *params, const moert_%s_args *args, moert_kernel *kernel, moert_context *context);\n'
                   % (op.id, op.id, op.id))
    out.append('#ifdef __cplusplus\n}\n#endif\n#endif /* MOERT_OPS_H */')
    return '\n'.join(out) + '\n'


# --- lib/runtime/ops.c --------------------------------------------------------------------------------

def dtype_list(operand):
    if 'Moe_AnyElement' in operand.dtypes:
        return '0'
    return ' | '.join('MOERT__DTYPE_' + d for d in operand.dtypes)


def runtime_inc(ops):
    out = [banner('descriptors of the ops, and their functions')]
    for op in ops:
        if not op.runtime:
            continue
        args = 'moert_%s_args' % op.id
        rows = []
        for o in op.passed():
            if o.buffer:
                flags = [f for f, on in (('MOERT__OPTIONAL', o.optional), ('MOERT__DESTINATION', o.destination), ('MOERT__STRIDED', o.strided)) if on]
                rows.append('    {"%s", offsetof(%s, %s), %s, %s, %d, MOERT_MEMORY_%s, %s, %s},' % (
                    o.name, args, o.name, 'offsetof(%s, num_%s)' % (args, o.name) if o.variadic else '0',
                    dtype_list(o), o.rank, o.memory.upper(), ' | '.join(flags) or '0', '"%s"' % o.in_place if o.in_place else 'NULL'))
        count = len(rows)
        if count:
            out.append('static const moert__operand moert__operands_%s[] = {\n%s\n};' % (op.id, '\n'.join(rows)))
        rows = ['    {"%s", offsetof(moert_%s_params, %s), MOERT__PARAMETER_%s, %d, %d},' % (
            a.name, op.id, a.name, a.kind, a.minimum, len(a.cases) - 1 if a.cases else 1 if a.kind == 'BOOL' else a.maximum) for a in op.attributes]
        if rows:
            out.append('static const moert__parameter moert__parameters_%s[] = {\n%s\n};' % (op.id, '\n'.join(rows)))
        out.append('static moert_status moert__call_host_%s(const void *params, const void *args, int32_t instance, moert_context *context) {\n'
                   '  (void)instance;\n  return moert__host_%s(params, args, context);\n}' % (op.id, op.id))
        out.append('static const moert__op moert__op_%s = {MOERT__OP_%s, "%s", sizeof(moert_%s_params), sizeof(%s), %s, %d, %s, %d, %d, %d, '
                   'moert__call_host_%s};' % (
                       op.id, op.id.upper(), op.name, op.id, args, 'moert__operands_%s' % op.id if count else 'NULL', count,
                       'moert__parameters_%s' % op.id if rows else 'NULL', len(rows), op.fabric, op.kernel, op.id))
        out.append('moert_status moert_%s(const moert_%s_params *params, const %s *args, moert_kernel *kernel, moert_context *context) {\n'
                   '  return moert__run(&moert__op_%s, params, args, kernel, context);\n}\n' % (op.id, op.id, args, op.id))
    out.append('static const moert__op *const moert__ops[MOERT__NUM_OPS] = {%s};' % ', '.join('&moert__op_' + op.id for op in ops if op.runtime))
    return '\n'.join(out) + '\n'


def host_h(ops):
    ops = [op for op in ops if op.runtime]
    out = [banner('the host backend'), 'enum {']
    out += ['  MOERT__OP_%s,' % op.id.upper() for op in ops]
    out.append('  MOERT__NUM_OPS\n};\n')
    for op in ops:
        out.append('moert_status moert__host_%s(const moert_%s_params *params, const moert_%s_args *args, moert_context *context);' % (op.id, op.id, op.id))
    return '\n'.join(out) + '\n'


def cuda_h(ops):
    out = [banner('the CUDA backend'), '#ifdef __cplusplus\nextern "C" {\n#endif']
    for op in ops:
        if op.runtime and op.kernel:
            out.append('moert_status moert__cuda_%s(const moert_%s_params *params, const moert_%s_args *args, int32_t instance, moert_context *context);' % (
                op.id, op.id, op.id))
    out.append('#ifdef __cplusplus\n}\n#endif\n')
    return '\n'.join(out)


def cuda_inc(ops):
    ops = [op for op in ops if op.runtime and op.kernel]
    out = [banner('the functions of the CUDA backend')]
    for op in ops:
        out.append('static moert_status moert__call_cuda_%s(const void *params, const void *args, int32_t instance, moert_context *context) {\n'
                   '  return moert__cuda_%s(params, args, instance, context);\n}' % (op.id, op.id))
    out.append('static moert__backend_function *const moert__cuda_functions[MOERT__NUM_OPS] = {')
    out += ['    [MOERT__OP_%s] = moert__call_cuda_%s,' % (op.id.upper(), op.id) for op in ops]
    out.append('};\n')
    return '\n'.join(out)


# --- lib/ir/ops.h -------------------------------------------------------------------------------------

def ir_h(ops):
    out = [banner('descriptors of the ops for the compile side'), '#ifndef MOE_IR_OPS_GENERATED_H\n#define MOE_IR_OPS_GENERATED_H\n']
    for op in ops:
        out.append('/* %s */' % op.name)
        names = ['%s_%s' % (op.id.upper(), o.name.upper()) for o in op.operands]
        out.append('enum { %s };' % ', '.join(names))
        for a in op.attributes:
            if a.cases:
                out.append('enum { %s };' % ', '.join('%s_%s_%s' % (op.id.upper(), a.name.upper(), c.upper()) for c in a.cases))
        out.append('extern const MoeOp %s;' % op.id)
        out.append('MlirLogicalResult %s_verify(MlirOperation op);' % op.id)
        out.append('MlirLogicalResult %s_lower(MlirOperation op, MoeLowering *lowering);' % op.id)
        if op.canonicalizes:
            out.append('MlirLogicalResult %s_canonicalize(MlirOperation op, MlirRewriterBase rewriter);' % op.id)
        out.append('')
    out.append('#endif')
    return '\n'.join(out) + '\n'


def ir_c(ops):
    out = [banner('descriptors of the ops for the compile side'), '#include "lib/ir/ops.h"\n']
    for op in ops:
        rows = ['    {"%s", MOE_%s, %d, %d, %d, %d, %s, "%s", %d},' % (
            o.name, o.kind(), o.optional, o.variadic, o.kept, o.observed, '"%s"' % o.in_place if o.in_place else 'NULL', o.memory, o.since)
            for o in op.operands]
        out.append('static const MoeOperand %s_operands[] = {\n%s\n};' % (op.id, '\n'.join(rows)))
        for a in op.attributes:
            if a.cases:
                out.append('static const char *const %s_%s_cases[] = {%s};' % (op.id, a.name, ', '.join('"%s"' % c for c in a.cases)))
        rows = ['    {"%s", MOE_%s, %s, %s, %d, %s},' % (
            a.name, a.kind, a.c_default(), '%s_%s_cases' % (op.id, a.name) if a.cases else 'NULL', len(a.cases),
            '"%s"' % a.only_for if a.only_for else 'NULL') for a in op.attributes]
        if rows:
            out.append('static const MoeAttribute %s_attributes[] = {\n%s\n};' % (op.id, '\n'.join(rows)))
        out.append('const MoeOp %s = {"%s", "moert_%s", %s_operands, %d, %s, %d, %d, %d, %d, %s, %s_verify, %s_lower, %s};\n' % (
            op.id, op.name, op.id, op.id, len(op.operands), '%s_attributes' % op.id if rows else 'NULL', len(rows), op.fabric, op.idempotent, op.kernel,
            '"%s"' % op.scalar if op.scalar else 'NULL', op.id, op.id, op.id + '_canonicalize' if op.canonicalizes else 'NULL'))
    out.append('const MoeOp *const moeOps[] = {%s, NULL};' % ', '.join('&' + op.id for op in ops))
    return '\n'.join(out) + '\n'


# --- include/moe-mlir-c/Ops.h -------------------------------------------------------------------------

def capi_words(op):
    """The words of an op's names on the compile side; those of the dialect `moe` do without its name."""
    words = re.split(r'[._]', op.name)
    return words[1:] if words[0] == 'moe' else words


def capi_name(op):
    return ''.join(word.capitalize() for word in capi_words(op))


def capi_macro(op):
    return 'MOE_MLIR_' + '_'.join(capi_words(op)).upper()


def capi_extra(op):
    """Parameters and arguments of a builder that are neither operands nor attributes: (the last result's type, region)."""
    return ('MlirType ' + op.scalar if op.scalar and not op.scalar_type else None, 'MlirRegion ' + op.region if op.region else None)


def capi_signatures(op):
    name, (scalar, region) = capi_name(op), capi_extra(op)
    operands = 'const MoeMlir%sOperands *operands' % name
    attributes = 'const MoeMlir%sAttributes *attributes' % name if op.attributes else None
    create = ', '.join(filter(None, ['MlirLocation location', operands, attributes, scalar, region]))
    infer = ', '.join(filter(None, ['MlirLocation location', operands, scalar, 'intptr_t capacity', 'MlirType *types']))
    return 'MlirOperation moeMlir%sCreate(%s)' % (name, create), 'intptr_t moeMlir%sInferResultTypes(%s)' % (name, infer)


def capi_types(o):
    return '!moe.context' if o.memory == 'context' else o.what


def capi_attribute_note(op, a):
    values = {'ENUM': 'one of %s_%s_...' % (capi_macro(op), a.name.upper()), 'BOOL': '0 or 1', 'FLOAT': 'finite',
              'INT': '%d to %d' % (a.minimum, a.maximum)}[a.kind]
    return values + ('; required' if a.default is None else '')


def capi_attribute_initial(a):
    if a.default is not None:
        return a.c_default()
    return 'MOE_MLIR_REQUIRED_FLOAT' if a.kind == 'FLOAT' else 'MOE_MLIR_REQUIRED'


def capi_operands(op):
    """The struct of an op's operands, and the macro that begins one."""
    struct = 'MoeMlir%sOperands' % capi_name(op)
    out, initial = ['typedef struct %s {\n  size_t struct_size;' % struct], ['sizeof(%s)' % struct]
    for o in op.operands:
        notes = ['optional'] * o.optional + ['destination'] * o.destination + [capi_types(o)]
        if o.variadic:
            out.append('  int64_t num_%s;\n  const MlirValue *%s; /* %s */' % (o.name, o.name, ': '.join(notes)))
            initial += ['0', 'NULL']
        else:
            out.append('  MlirValue %s; /* %s */' % (o.name, ': '.join(notes)))
            initial.append('{NULL}')
    out.append('} %s;\n#define %s_OPERANDS_INIT {%s}\n' % (struct, capi_macro(op), ', '.join(initial)))
    return out


def capi_attributes(op):
    """The same of its attributes, and the indices of their cases."""
    struct = 'MoeMlir%sAttributes' % capi_name(op)
    out, initial = [], ['sizeof(%s)' % struct]
    for a in op.attributes:
        if a.cases:
            names = ['%s_%s_%s = %d' % (capi_macro(op), a.name.upper(), c.upper(), i) for i, c in enumerate(a.cases)]
            out.append('enum { %s };' % ', '.join(names))
    out.append('typedef struct %s {\n  size_t struct_size;' % struct)
    for a in op.attributes:
        out.append('  %s %s; /* %s */' % (a.c_type(), a.name, capi_attribute_note(op, a)))
        initial.append(capi_attribute_initial(a))
    out.append('} %s;\n#define %s_ATTRIBUTES_INIT {%s}\n' % (struct, capi_macro(op), ', '.join(initial)))
    return out


def capi_h(ops):
    out = [banner('builders of the ops'), '''#ifndef MOE_MLIR_C_OPS_H
#define MOE_MLIR_C_OPS_H

#include <moe-mlir-c/MoeMlir.h>
#include <moe-mlir-c/OpInfo.h>

#ifdef __cplusplus
extern "C" {
#endif

/* moeMlir<Op>Create makes the op, verified and not inserted: it is the caller's to insert or destroy. Structs begin with their ..._INIT macro. Operands
 * that are optional stay null, lists are a count and a pointer, and the caller keeps what he passes. Attributes may be NULL where none is required. There is
 * one result for each destination on tensors, then the op's number or view, whose type is a parameter where the op does not fix it. A region becomes the
 * op's, or is destroyed; a null one is none.
 *
 * If an operand or a required attribute is missing, or the verifier refuses the op, the result is a null operation, and a diagnostic at `location` says why.
 * The dialect is loaded into the location's context.
 *
 * moeMlir<Op>InferResultTypes writes the types that the results will have, `capacity` of them at most, and returns how many there are; -1, with a
 * diagnostic, if an operand is missing. With a null `location` it is silent.
 */
''']
    for op in ops:
        create, infer = capi_signatures(op)
        out.append('/*===--- %s: %s. */\n' % (op.name, op.summary))
        out += capi_operands(op)
        if op.attributes:
            out += capi_attributes(op)
        out.append('MLIR_CAPI_EXPORTED %s;\nMLIR_CAPI_EXPORTED %s;\n' % (create, infer))
    out.append('#ifdef __cplusplus\n}\n#endif\n#endif /* MOE_MLIR_C_OPS_H */')
    return '\n'.join(out) + '\n'


# --- lib/ir/capi.c ------------------------------------------------------------------------------------

CAPI_KINDS = {'VALUE': 'NUMBER', 'EXTENT': 'SIZES'}  # other names than those of lib/ir/ops.h


def c_string(text):
    return '"%s"' % text.replace('\\', '\\\\').replace('"', '\\"') if text else 'NULL'


def c_bool(value):
    return 'true' if value else 'false'


def capi_operand_row(op, o):
    struct = 'MoeMlir%sOperands' % capi_name(op)
    return '    &(const MoeMlirOperandInfo){"%s", %s, MOE_MLIR_%s, "%s", %s, %s, %s, %s, %s, offsetof(%s, %s), %s},' % (
        o.name, c_string(capi_types(o)), CAPI_KINDS.get(o.kind(), o.kind()), o.memory if o.buffer else '', c_bool(o.optional), c_bool(o.variadic),
        c_bool(o.kept), c_bool(o.observed), c_string(o.in_place), struct, o.name, 'offsetof(%s, num_%s)' % (struct, o.name) if o.variadic else '0')


def capi_attribute_row(op, a):
    limits = {'INT': (a.minimum, a.maximum), 'ENUM': (0, len(a.cases) - 1), 'BOOL': (0, 1), 'FLOAT': (0, 0)}[a.kind]
    default = a.c_default() if a.default is not None else '0'
    cases = '(const char *const[]){%s}' % ', '.join('"%s"' % c for c in a.cases) if a.cases else 'NULL'
    bounds = '{sizeof(MoeMlirBounds), MOE_MLIR_%s, %s, %d, %d, %s, %s, %d, %s}' % (
        a.kind, c_bool(a.default is None), *limits, *(('0', default) if a.kind == 'FLOAT' else (default, '0')), len(a.cases), cases)
    return '    &(const MoeMlirAttributeInfo){"%s", &(const MoeMlirBounds)%s, offsetof(MoeMlir%sAttributes, %s)},' % (a.name, bounds, capi_name(op), a.name)


def capi_inc(ops):
    out = [banner('tables of the ops, and their builders')]
    for op in ops:
        out.append('static const MoeMlirOperandInfo *const operands_%s[] = {\n%s\n    NULL};' % (
            op.id, '\n'.join(capi_operand_row(op, o) for o in op.operands)))
        out.append('static const MoeMlirAttributeInfo *const attributes_%s[] = {\n%s    NULL};' % (
            op.id, ''.join(capi_attribute_row(op, a) + '\n' for a in op.attributes)))
        out.append('static const Op op_%s = {{"%s", %s, %s, operands_%s, attributes_%s, %s, %s, %s, sizeof(MoeMlir%sOperands), %s}, %s, %s, %s};' % (
            op.id, op.name, c_string(op.summary), c_bool(op.fabric), op.id, op.id, c_string(op.scalar), c_string(op.scalar_type), c_string(op.region),
            capi_name(op), 'sizeof(MoeMlir%sAttributes)' % capi_name(op) if op.attributes else '0',
            'mlirGetDialectHandle__%s__' % op.name.split('.')[0], c_bool(op.segments), c_bool(op.region_optional)))
        create, infer = capi_signatures(op)
        scalar = op.scalar if op.scalar and not op.scalar_type else '(MlirType){NULL}'
        out.append('%s {\n  return createOp(&op_%s, location, operands, %s, %s, %s);\n}' % (
            create, op.id, 'attributes' if op.attributes else 'NULL', scalar, op.region or '(MlirRegion){NULL}'))
        out.append('%s {\n  return inferOp(&op_%s, location, operands, %s, capacity, types);\n}\n' % (infer, op.id, scalar))
    out.append('static const Op *const ops[] = {%s, NULL};' % ', '.join('&op_' + op.id for op in ops))
    out.append('static const MoeMlirOpInfo *const infos[] = {%s, NULL};' % ', '.join('&op_%s.info' % op.id for op in ops))
    return '\n'.join(out) + '\n'


GENERATORS = {'ops.h': ops_h, 'host.h': host_h, 'cuda_ops.h': cuda_h, 'cuda_ops.inc': cuda_inc, 'runtime.inc': runtime_inc, 'ir.h': ir_h, 'ir.c': ir_c, 'capi.h': capi_h, 'capi.inc': capi_inc}


def main():
    what, output, paths = sys.argv[1], sys.argv[2], sys.argv[3:]
    text = GENERATORS[what](load(paths))
    with open(output, 'w') as f:
        f.write(text)


if __name__ == '__main__':
    main()
