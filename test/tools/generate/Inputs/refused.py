"""refused.py MOE.json: gives generate.py one wrong record after the other, and prints what it says."""
import copy
import importlib.util
import json
import os
import sys
import tempfile

path = os.path.join(os.path.dirname(__file__), '..', '..', '..', '..', 'cmake', 'generate.py')
spec = importlib.util.spec_from_file_location('generate', path)
generate = importlib.util.module_from_spec(spec)
spec.loader.exec_module(generate)

with open(sys.argv[1]) as file:
    sound = json.load(file)


def load(records):
    with tempfile.NamedTemporaryFile('w', suffix='.json') as file:
        json.dump(records, file)
        file.flush()
        return generate.load([file.name])


def refused(op, **fields):
    """Of fields of an op; `arguments` are pairs of a name and another constraint."""
    records = copy.deepcopy(sound)
    for name, constraint in fields.pop('arguments', ()):
        [argument] = [a for a in records[op]['arguments']['args'] if a[1] == name]
        argument[0]['def'] = constraint
    records[op].update(fields)
    try:
        load(records)
        print('accepted: %s' % fields)
    except SystemExit as error:
        print(error)


refused('Moe_GroupedMatmulOp', kept=['ouut'])
refused('Moe_GroupedMatmulOp', destinations=['ouut'], kept=[])
refused('Moe_SanitizeExpertIdsOp', observed=['workspace', 'metanfo'])
refused('Moe_AllreduceFusionOp', inPlace=['residual_out=residual'])
refused('Moe_RouteOp', destinations=['logits', 'weights'])
refused('Moe_RouteOp', kept=['logits'])
refused('Moe_SanitizeExpertIdsOp', observed=['expert_ids'])
refused('Moe_QuantizeOp', strided=['inputs'])
refused('Moe_QuantizeOp', strided=['global_scale'])
refused('Moe_DispatchOp', since=['eplb_stats=2'])
refused('Moe_DispatchOp', since=['topk_ids=2'])
refused('Moe_RouteOp', onlyFor=['renormalise=weights'])
refused('Moe_RouteOp', onlyFor=['top_k=weights'])
refused('Moe_RouteOp', onlyFor=['renormalize=logits'])
refused('Moe_DispatchOp', scalar='offset')
refused('Moe_RouteOp', arguments=[('top_k', 'I32Attr')])
refused('Moe_RouteOp', arguments=[('bias', 'F32')])
print('sound' if load(sound) else 'no ops')
