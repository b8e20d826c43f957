"""What the scripts of this folder share: ranks on two GPUs, the measurement, tables.

Import it before torch: it keeps NVLink multicast off in every library that could use it.
"""
import argparse
import faulthandler
import json
import os
import statistics
import sys
import traceback
from datetime import timedelta

for _name, _value in (('NCCL_NVLS_ENABLE', '0'), ('TORCH_SYMM_MEM_DISABLE_MULTICAST', '1'), ('NVSHMEM_DISABLE_NVLS', '1'),
                      ('NVSHMEM_REMOTE_TRANSPORT', 'none')):
    os.environ[_name] = _value
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', '..', 'python'))

# pylint: disable=wrong-import-position
import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402
import torch.multiprocessing as mp  # noqa: E402

import moert  # noqa: E402

WORLD = 2


# --- measuring ------------------------------------------------------------------------------------------------

def _capture(call, calls, stream):
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream, capture_error_mode='thread_local'):
        for i in range(calls):
            call(i)
    return graph


def measure(call, calls, capturable, reset=lambda: None, samples=11, target_ms=6.0):
    """Microseconds of one call(i) in a chain of `calls`: of each sample the slower rank; the median, the smallest and the largest sample.

    The chain is captured in a CUDA graph if it can be, else it is launched call by call. Before a sample a tiny all-reduce lines the ranks up on
    the device, and `reset` restores what calls change.
    """
    stream, device = torch.cuda.Stream(), torch.device('cuda', torch.cuda.current_device())
    tiny = torch.zeros(1, device=device)
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for i in range(min(4, calls)):  # loads code, and makes what a capture must find made
            call(i)
    torch.cuda.synchronize()
    dist.barrier()
    graph = _capture(call, calls, stream) if capturable else None

    def chain():
        if graph:
            graph.replay()
        else:
            for i in range(calls):
                call(i)

    def sample(repeats):
        reset()
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        torch.cuda.synchronize()
        with torch.cuda.stream(stream):
            dist.all_reduce(tiny)
            begin.record()
            for _ in range(repeats):
                chain()
            end.record()
        end.synchronize()
        elapsed = torch.tensor([begin.elapsed_time(end)], dtype=torch.float64, device=device)
        dist.all_reduce(elapsed, op=dist.ReduceOp.MAX)
        return float(elapsed)

    sample(1)
    repeats = int(min(40, max(1, target_ms / max(sample(1), 1e-3))))
    times = [1e3 * sample(repeats) / (repeats * calls) for _ in range(samples)]
    return {'us': statistics.median(times), 'us_min': min(times), 'us_max': max(times)}


def all_agree(holds):
    """Whether it holds on all ranks."""
    failed = torch.tensor([0 if holds else 1], device='cuda')
    dist.all_reduce(failed)
    return int(failed) == 0


def relative_error(value, wanted):
    norm = float(wanted.double().norm())
    return float((value.double() - wanted.double()).norm()) / norm if norm else float(value.double().norm())


# --- ranks and reports --------------------------------------------------------------------------------------------

def record_of(describe, run):
    """`describe` with what run() gives, or with the error that it raised."""
    try:
        return {**describe, **run()}
    except Exception as error:  # pylint: disable=broad-except
        traceback.print_exc()
        return {**describe, 'error': repr(error)[:300]}


def table(records, columns):
    lines = ['| %s |' % ' | '.join(columns), '|%s' % ('---|' * len(columns))]
    for record in records:
        cells = [record.get(column, '') for column in columns]
        lines.append('| %s |' % ' | '.join('%.4g' % cell if isinstance(cell, float) else str(cell) for cell in cells))
    return '\n'.join(lines)


def versions():
    return {'gpu': torch.cuda.get_device_name(0), 'torch': torch.__version__, 'cuda': torch.version.cuda,
            'nccl': '.'.join(str(part) for part in torch.cuda.nccl.version()), 'moert': moert.__version__}


def _rank_main(rank, port, options, rank_program):
    if options.watchdog:
        faulthandler.dump_traceback_later(options.watchdog, exit=True)
    device = torch.device('cuda', rank)
    torch.cuda.set_device(device)
    dist.init_process_group('nccl', init_method='tcp://127.0.0.1:%d' % port, rank=rank, world_size=WORLD, device_id=device,
                            timeout=timedelta(seconds=120))
    comm, records = moert.Comm.from_torch(), []
    for record in rank_program(options, comm):
        records.append(record)
        if rank == 0:
            print(json.dumps(record), flush=True)
    if rank == 0:
        with open(options.json, 'w') as file:
            json.dump({'versions': versions(), 'records': records}, file, indent=1)
    torch.cuda.synchronize()
    dist.barrier()
    os._exit(0)  # libraries with symmetric memory do not agree on an order of leaving


def main(description, columns, rank_program):
    """Run `rank_program(options, comm)`, which yields records, on two GPUs; write them as JSON and print a table."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--json', default='peers.json', help='file for the records')
    parser.add_argument('--tokens', type=lambda text: [int(part) for part in text.split(',')], help='tokens of each rank, such as 8,128')
    parser.add_argument('--only', type=lambda text: text.split(','), help='variants, such as nccl,moert')
    parser.add_argument('--quick', action='store_true', help='two sizes, few samples')
    parser.add_argument('--watchdog', type=int, default=0, metavar='S', help='after S seconds print where every rank stands, and exit')
    options = parser.parse_args()
    if torch.cuda.device_count() < WORLD:
        sys.exit('two GPUs are needed, there are %d' % torch.cuda.device_count())
    mp.spawn(_rank_main, args=(29600 + os.getpid() % 300, options, rank_program), nprocs=WORLD)
    with open(options.json) as file:
        records = json.load(file)['records']
    print(table(records, columns))
    return 1 if any('error' in record for record in records) else 0
