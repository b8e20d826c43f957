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

class Chain:
    """`calls` calls of call(i), captured in a CUDA graph if they can be, else launched one by one; `reset` restores what they change. Collective."""

    def __init__(self, call, calls, capturable, reset=lambda: None):
        self.call, self.calls, self.reset = call, calls, reset
        self.stream, self.repeats, self.graph = torch.cuda.Stream(), 1, None
        self.tiny = torch.zeros(1, device='cuda')
        self.stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self.stream):
            for i in range(min(4, calls)):  # loads code, and makes what a capture must find made
                call(i)
        torch.cuda.synchronize()
        dist.barrier()
        if capturable:
            self._capture()

    def _capture(self):
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph, stream=self.stream, capture_error_mode='thread_local'):
            for i in range(self.calls):
                self.call(i)

    def _launch(self):
        if self.graph:
            self.graph.replay()
            return
        for i in range(self.calls):
            self.call(i)

    def milliseconds(self):
        """Of `repeats` chains, on the slower rank. Before them a tiny all-reduce lines the ranks up on the device."""
        self.reset()
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        torch.cuda.synchronize()
        with torch.cuda.stream(self.stream):
            dist.all_reduce(self.tiny)
            begin.record()
            for _ in range(self.repeats):
                self._launch()
            end.record()
        end.synchronize()
        elapsed = torch.tensor([begin.elapsed_time(end)], dtype=torch.float64, device='cuda')
        dist.all_reduce(elapsed, op=dist.ReduceOp.MAX)
        return float(elapsed)

    def settle(self, target_ms):
        """So many repeats that a sample takes about `target_ms`, the same number on all ranks."""
        self.milliseconds()
        self.repeats = int(min(40, max(1, target_ms / max(self.milliseconds(), 1e-3))))

    def microseconds(self):
        """Of one call."""
        return 1e3 * self.milliseconds() / (self.repeats * self.calls)


def measure(chains, samples=11, target_ms=6.0):
    """Microseconds of one call of each chain (a dictionary): the median, the smallest and the largest sample. Samples of all chains alternate."""
    for chain in chains.values():
        chain.settle(target_ms)
    times = {name: [] for name in chains}
    for _ in range(samples):
        for name, chain in chains.items():
            times[name].append(chain.microseconds())
    return {name: {'us': statistics.median(each), 'us_min': min(each), 'us_max': max(each)} for name, each in times.items()}


def all_agree(holds):
    """Whether it holds on all ranks."""
    failed = torch.tensor([0 if holds else 1], device='cuda')
    dist.all_reduce(failed)
    return int(failed) == 0


def relative_error(value, wanted):
    norm = float(wanted.double().norm())
    return float((value.double() - wanted.double()).norm()) / norm if norm else float(value.double().norm())


# --- ranks and reports --------------------------------------------------------------------------------------------

def _noting_errors(record, step):
    """What step() returns; None if it raises, with the error in the record."""
    try:
        return step()
    except Exception as error:  # pylint: disable=broad-except
        traceback.print_exc()
        record['error'] = repr(error)[:300]
        return None


def records_of(variants, samples):
    """A record of each variant. `variants`: name to (what describes it, a function that checks it and gives more for the record and its Chain, a
    function that gives what follows from the microseconds). A variant that raises has its error in the record; the others are measured in turn."""
    records, chains = {name: dict(describe) for name, (describe, _, _) in variants.items()}, {}
    for name, (_, prepare, _) in variants.items():
        made = _noting_errors(records[name], prepare)
        if made:
            more, chains[name] = made
            records[name].update(more)
    for name, times in measure(chains, samples).items():
        records[name].update(times)
        records[name].update(_noting_errors(records[name], lambda name=name, us=times['us']: variants[name][2](us)) or {})
    return list(records.values())


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
    parser.add_argument('--only', type=lambda text: text.split(','), help='variants, such as moert')
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
