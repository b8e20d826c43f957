"""attribute_kinds.py DIALECT: prints a module for `moe-opt --split-input-file --verify-diagnostics`: every parameter of every op with attributes of every
wrong kind, beyond its bounds, missing if it is mandatory, and given once more under a wrong name. Nothing may crash, and each is an error that names
the parameter."""
import sys

INT = '64-bit signless integer attribute whose minimum value is {} whose maximum value is {}'
WRONG = ['1 : i32', '1 : ui64', '1 : si64', '1 : index', '1.0 : f32', '"text"', 'unit', '[1 : i64]', 'array<i64: 1>', 'dense<1> : tensor<1xi64>', '{a = 1 : i64}',
         'i64', '@symbol', '#moe.host']


class Int:
    def __init__(self, minimum, maximum, default=None):
        self.minimum, self.maximum, self.default = minimum, maximum, default
        self.text = INT.format(minimum, maximum)

    def wrong(self):
        return WRONG + ['true', '1.0 : f64', '%d : i64' % (self.minimum - 1), '%d : i64' % (self.maximum + 1), '-9223372036854775808 : i64']


class OneOf:
    def __init__(self, *names):
        self.text, self.default = 'one of ' + ', '.join(names), names[0]

    def wrong(self):
        return [w for w in WRONG if w != '"text"'] + ['true', '1.0 : f64', '1 : i64', '"text"', '""', '"%s "' % self.default, '"%s|"' % self.default]


class Bool:
    text, default = 'bool attribute', False

    def wrong(self):
        return WRONG + ['1.0 : f64', '1 : i64']


class Float:
    text, default = '64-bit float attribute which is finite', 1.0

    def wrong(self):
        return WRONG + ['true', '1 : i64', '1.0 : f16', '0x7FF0000000000000 : f64', '0xFFF0000000000000 : f64', '0x7FF8000000000000 : f64']


def reduction_parameters():
    return {'hidden_size': Int(8, 1073741824), 'rms_eps': Float(), 'weight_bias': Float(), 'fp32_acc': Bool(), 'backend': OneOf('trtllm'),
            'strategy': OneOf('auto', 'one_shot', 'two_shot'),
            'quant_format': OneOf('none', 'nvfp4', 'mxfp4', 'mxfp8', 'fp8_block', 'fp8_token', 'fp8_tensor'),
            'layout_code': OneOf('linear', '128x4', '8x4'), 'scale_factor': Float(), 'launch_with_pdl': Bool(), 'world_size': Int(0, 64, 0)}


def workspace_parameters():
    return {'max_num_tokens': Int(1, 16777216), 'dispatch_bytes_per_token': Int(1, 2147483647), 'combine_bytes_per_token': Int(1, 2147483647),
            'eplb_stats_num_experts': Int(0, 65536, 0), 'ep_size': Int(0, 64, 0)}


SIZES = 'max_num_tokens = 8 : i64, dispatch_bytes_per_token = 16 : i64, combine_bytes_per_token = 16 : i64'
STATE = 'memref<?xi8>, memref<16xi64, #moe.host>'
FORMAT = OneOf('nvfp4', 'mxfp4', 'mxfp8', 'fp8_block', 'fp8_token', 'fp8_tensor')
LAYOUT, PACKING = OneOf('linear', '128x4', '8x4', 'transposed'), OneOf('low_first', 'mega')

# op: (what is valid of its parameters, other attributes, operand types, result types, all parameters)
MOE = {
    'moe.route': ('top_k = 2 : i64, n_experts = 8 : i64', '', 'memref<?x8xf32>, memref<?x2xi32>, memref<?x2xf32>', '', {
        'top_k': Int(1, 32), 'n_experts': Int(1, 4096), 'score': OneOf('softmax', 'sigmoid'), 'order': OneOf('score_then_top_k', 'top_k_then_score'),
        'renormalize': Bool(), 'routed_scaling_factor': Float(), 'n_group': Int(1, 4096, 1), 'topk_group': Int(1, 4096, 1)}),
    'moe.grouped_matmul': ('', 'operandSegmentSizes = array<i32: 1, 1, 1, 0, 0, 0, 0, 0, 1, 1>',
                           'memref<?x8xf32>, memref<?xi32>, memref<?x16x8xf32>, memref<?x16xf32>', '', {
        'activation': OneOf('none', 'swiglu'), 'alpha': Float(), 'limit': Float(), 'accumulator': OneOf('f32'),
        'weight_format': OneOf('none', 'nvfp4', 'mxfp4')}),
    'moe.nvfp4_routed': ('top_k = 2 : i64', 'operandSegmentSizes = array<i32: %s>' % ', '.join(11 * ['1'] + 11 * ['0'] + 6 * ['1']),
                         'memref<?x128xi8>, memref<?x16xi8>, memref<4x256x128xi8>, memref<4x256x16xi8>, memref<4x256x64xi8>, memref<4x256x8xi8>, '
                         'memref<4xf32>, memref<4xf32>, memref<4xf32>, memref<?x2xi32>, memref<?x2xf32>, memref<?xi32>, memref<?xi32>, memref<1xi32>, '
                         'memref<6xi32>, memref<?x256xbf16>', '', {
        'top_k': Int(1, 32), 'block_m': Int(8, 65536, 8), 'routed_scaling_factor': Float(), 'accumulate': Bool(), 'first_expert': Int(0, 2147483647, 0),
        'num_experts': Int(0, 2147483647, 0)}),
    'moe.prepare_nvfp4': ('layout = "w1_data"', '', 'memref<4x512x128xi8>, memref<16x128x128xi8>', '', {
        'layout': OneOf('w1_scales', 'w2_scales', 'w1_data', 'w1_gate_up_data', 'w1_gate_up_scales', 'w1_scales_interleaved', 'w2_data', 'w2_data_k256',
                        'w2_scales_k256', 'w1_fragments', 'w2_fragments')}),
    'moe.quantize': ('format = "fp8_token"', 'operandSegmentSizes = array<i32: 1, 0, 1, 1, 1>',
                     'memref<?x64xf32>, memref<?x64xi8>, memref<?x1xf32>', '', {
        'format': FORMAT, 'scale_layout': LAYOUT, 'packing': PACKING, 'scale_rounding': OneOf('up', 'even'), 'fast_reciprocal': Bool()}),
    'moe.dequantize': ('format = "fp8_token"', 'operandSegmentSizes = array<i32: 1, 1, 0, 1, 1>',
                       'memref<?x64xi8>, memref<?x1xf32>, memref<?x64xf32>', '', {'format': FORMAT, 'scale_layout': LAYOUT, 'packing': PACKING}),
    'moe.workspace_size': (SIZES, '', '', 'index', workspace_parameters()),
    'moe.initialize': (SIZES, '', STATE, '', workspace_parameters()),
    'moe.dispatch': ('top_k = 2 : i64, n_experts = 8 : i64', 'operandSegmentSizes = array<i32: 1, 0, 1, 0, 1, 1, 1, 0, 1, 0, 0, 0, 1>',
                     'memref<?x2xi32>, memref<?x4xi8>, %s, index, memref<?x?x4xi8>' % STATE, 'i64', {
        'top_k': Int(1, 32), 'n_experts': Int(1, 65536), 'layout': OneOf('rank_major', 'expert_grouped'), 'max_sms': Int(0, 1024, 0),
        'enable_pdl': Bool(), 'ep_size': Int(0, 64, 0)}),
    'moe.combine': ('top_k = 2 : i64, hidden_size = 4 : i64', 'operandSegmentSizes = array<i32: 1, 1, 1, 1, 1, 0, 1, 0, 1>',
                    'memref<?x?x4xf32>, %s, index, i64, memref<?x4xf32>' % STATE, '', {
        'top_k': Int(1, 32), 'hidden_size': Int(1, 1073741824), 'layout': OneOf('rank_major', 'expert_grouped'), 'payload_in_workspace': Bool(),
        'use_low_precision': Bool(), 'output_format': OneOf('none', 'nvfp4', 'mxfp4', 'mxfp8'), 'sf_layout': OneOf('linear', '128x4', '8x4'),
        'output_scalar_scale': Float(), 'max_sms': Int(0, 1024, 0), 'enable_pdl': Bool(), 'ep_size': Int(0, 64, 0)}),
    'moe.sanitize_expert_ids': ('', '', '%s, memref<?x?x?xi32>' % STATE, '', {'invalid_expert_id': Int(-2**31, 2**31 - 1, -1), 'ep_size': Int(0, 64, 0)}),
    'moe.allreduce_fusion': ('hidden_size = 8 : i64, rms_eps = 0.5 : f64', 'operandSegmentSizes = array<i32: 1, 1, 1, 1, 0, 1, 1, 1, 1, 0, 0, 0, 0, 1>',
                             'memref<?x8xf32>, memref<8xf32>, memref<?x?x8xf32>, memref<?x?xf32>, memref<?x8xf32>, %s, memref<?x8xf32>' % STATE, '', {
        **reduction_parameters()}),
    'moe.finalize_allreduce_fusion': ('hidden_size = 8 : i64, rms_eps = 0.5 : f64', 'operandSegmentSizes = array<i32: 1, 1, 1, 1, 0, 0, 1, 1, 1, 0, 0, 0, 1>',
                                      'memref<?x8xf32>, memref<8xf32>, memref<?x8xf32>, memref<?x2xi32>, %s, memref<?x8xf32>' % STATE, '', {
        'routed_scaling_factor': Float(), **reduction_parameters()}),
    'moe.workspace_view': ('', '', 'memref<?xi8>, index', 'memref<4xf32>', {}),
    'moe.allocate': ('', '', '', 'memref<4xf32>', {}),
}


def geometry_and(**others):
    return {'hidden_size': Int(1, 1048576), 'top_k': Int(1, 32), 'n_experts': Int(1, 65536), 'max_token_per_rank': Int(1, 16777216),
            'n_gpus_per_node': Int(1, 8, 1), 'n_nodes': Int(1, 64, 1), **others}


GEOMETRY = 'hidden_size = 4 : i64, top_k = 2 : i64, n_experts = 8 : i64, max_token_per_rank = 8 : i64'
COUNTERS = 'memref<?xi32>'
TABLES = ', '.join(3 * ['memref<?xi64, #moe.host>'])

EP = {
    'ep.init': (GEOMETRY, '', '%s, %s, memref<?x?xi64, #moe.host>, memref<?xi32, #moe.host>' % (COUNTERS, COUNTERS), '', geometry_and(
        dispatch_dtype=OneOf('bf16', 'f8E4M3FN', 'ui8'), combine_dtype=OneOf('bf16', 'f16', 'f32'),
        dispatch_scale_dtype=OneOf('f32', 'f8E4M3FN', 'f8E8M0FNU'),
        dispatch_fmt_str=OneOf('BF16', 'BlockwiseFP8', 'BLOCK_SCALED_NV', 'MXFP4', 'MXFP6'))),
    'ep.dispatch': (GEOMETRY + ', skip_a2a = true', '',
                    'memref<?x4xbf16>, memref<?xi32>, memref<?xi32>, memref<?x2xi32>, %s, memref<?x4xbf16>, memref<?x2xi32>, %s' % (
                        COUNTERS, TABLES), '', geometry_and(fused_shared_expert=Bool(), skip_a2a=Bool(), allreduce_world_size=Int(1, 64, 1))),
    'ep.combine.skip_a2a': (GEOMETRY + ', allreduce_world_size = 1 : i64', '',
                            'memref<?x4xf32>, %s, memref<?x4xf32>, memref<?x2xi32>, %s, memref<?x2xf32>, memref<?x2xi32>' % (COUNTERS, TABLES), '',
                            geometry_and(fused_shared_expert=Bool(), skip_a2a=Bool(), allreduce_world_size=Int(1, 64))),
}

OPS = {'moe': MOE, 'ep': EP}[sys.argv[1]]


def function(op, attributes, error):
    _, _, operands, results, _ = OPS[op]
    types = [t for t in operands.replace(', #', '; #').split(', ') if t] + ['!moe.context']
    types = [t.replace(';', ',') for t in types]
    values = ['%%%d' % i for i in range(len(types))]
    arguments = ', '.join('%s: %s' % pair for pair in zip(values, types))
    result = '%r = ' if results else ''
    print("func.func @f(%s) {\n  // expected-error@+1 {{'%s' op %s}}" % (arguments, op, error))
    print('  %s"%s"(%s) {%s} : (%s) -> (%s)\n  return\n}\n\n// -----\n' % (result, op, ', '.join(values), attributes, ', '.join(types), results))


def joined(*attributes):
    return ', '.join(a for a in attributes if a)


for op, (valid, others, _, _, parameters) in OPS.items():
    pairs = [p for p in valid.split(', ') if p]
    for name, kind in parameters.items():
        rest = [p for p in pairs if not p.startswith(name + ' ')]
        for value in kind.wrong():
            function(op, joined(*rest, others, '%s = %s' % (name, value)), "attribute '%s' failed to satisfy constraint: %s" % (name, kind.text))
        if kind.default is None if isinstance(kind, Int) else False:
            function(op, joined(*rest, others), "requires attribute '%s'" % name)
        function(op, joined(valid, others, '%s_ = 1 : i64' % name), "has no parameter '%s_'" % name)
    function(op, joined(valid, others, 'unknown'), "has no parameter 'unknown'")
