"""What Gloo (through PyTorch, CPU tensors) does with the sizes and ranks of `npm run bench:peers`.

python3 gloo_peer.py RANK SIZE STORE_FILE OP BYTES:ITERATIONS [BYTES:ITERATIONS ...]
python3 gloo_peer.py RANK SIZE STORE_FILE serve SOCKET   runs the cases that SOCKET says: see served-ranks.mjs
"""

import json
import os
import resource
import socket
import sys
import time
from datetime import timedelta

os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
os.environ.setdefault("OMP_NUM_THREADS", "1")
import torch
import torch.distributed as dist

rank, size, store, op = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], sys.argv[4]
torch.set_num_threads(1)
dist.init_process_group(
    "gloo", init_method="file://" + store, rank=rank, world_size=size, timeout=timedelta(seconds=120)
)
root = 0
# Operations whose buffers are not cut into a part for each rank.
WHOLE = ("all_reduce", "broadcast", "reduce", "send")


def make_call(source, target, n, op=op):
    # Fewer elements than ranks have no parts, which operations without parts do not need.
    part = max(1, n // size)
    parts_in, parts_out = list(source.split(part))[:size], list(target.split(part))[:size]
    if op == "all_reduce":  # in place only: Gloo has no other form in PyTorch
        return lambda: dist.all_reduce(target)
    if op == "broadcast":
        return lambda: dist.broadcast(source, root)
    if op == "reduce":
        return lambda: dist.reduce(target, root)
    if op == "all_gather":
        return lambda: dist.all_gather(parts_out, parts_in[0])
    if op == "gather":
        return lambda: dist.gather(parts_in[0], parts_out if rank == root else None, root)
    if op == "scatter":
        return lambda: dist.scatter(parts_out[0], parts_in if rank == root else None, root)
    if op == "send":

        def exchange():
            work = dist.isend(source, (rank + 1) % size)
            dist.recv(target, (rank - 1) % size)
            work.wait()

        return exchange
    # Not in every PyTorch: one call says, on every rank alike.
    whole_in, whole_out = source[: part * size], target[: part * size]
    call = {
        "reduce_scatter": lambda: dist.reduce_scatter_tensor(parts_out[0], whole_in),
        "all_to_all": lambda: dist.all_to_all_single(whole_out, whole_in),
    }[op]
    try:
        call()
    except (RuntimeError, AttributeError):
        return None
    return call


def cpu_us():
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return (usage.ru_utime + usage.ru_stime) * 1e6


def serve(path):
    """Runs what the other end of a socket says, until it closes it."""
    tensors = {}
    with socket.socket(socket.AF_UNIX) as parent:
        parent.connect(path)
        lines = parent.makefile("rw")
        print(json.dumps({"who": "gloo", "rank": rank}), file=lines, flush=True)
        for line in lines:
            case = json.loads(line)
            n = max(1, case["bytes"] // 4)
            if n not in tensors:
                # Written, so that no page is the one that all fresh memory shares.
                length = max(n, size)
                tensors[n] = (torch.empty(length).fill_(0), torch.empty(length).fill_(0))
            source, target = tensors[n]
            if case["op"] in WHOLE:
                source, target = source[:n], target[:n]
            call = make_call(source, target, n, case["op"])
            if call is None:
                print(json.dumps({"us": -1, "cpuUs": 0}), file=lines, flush=True)
                continue
            for _ in range(case["warm"]):
                call()
            dist.barrier()
            before = cpu_us()
            began = time.perf_counter()
            for _ in range(case["iterations"]):
                call()
            us = (time.perf_counter() - began) * 1e6 / case["iterations"]
            spent = (cpu_us() - before) / case["iterations"]
            print(json.dumps({"us": us, "cpuUs": spent}), file=lines, flush=True)


if op == "serve":
    serve(sys.argv[5])
    sys.exit(0)

for argument in sys.argv[5:]:
    bytes_, iterations = (int(x) for x in argument.split(":"))
    n = bytes_ // 4
    index = torch.arange(n, dtype=torch.float64)

    def values(r):
        return ((index * 7 + r * 3) % 11).to(torch.float32)

    source, target = values(rank), values(rank)
    call = make_call(source, target, n)
    if call is None:
        if rank == 0:
            print(json.dumps({"skipped": op + " is not in Gloo"}), flush=True)
        break
    call()
    wrong = 0
    if op == "all_reduce":
        wrong = int((target != sum(values(r) for r in range(size))).sum())
    elif op == "broadcast":
        wrong = int((source != values(root)).sum())
    elif op == "send":
        wrong = int((target != values((rank - 1) % size)).sum())
    elif op == "all_gather":
        part = n // size
        wrong = sum(int((target[r * part : (r + 1) * part] != values(r)[:part]).sum()) for r in range(size))
    target.zero_()  # repeated sums in place must stay finite
    for _ in range(iterations // 10 + 2):
        call()
    dist.barrier()
    began = time.perf_counter()
    for _ in range(iterations):
        call()
    us = torch.tensor([(time.perf_counter() - began) * 1e6 / iterations, float(wrong)], dtype=torch.float64)
    dist.all_reduce(us)
    if rank == 0:
        print(
            json.dumps({"op": op, "sizeBytes": bytes_, "timeUs": us[0].item() / size, "wrong": int(us[1].item())}),
            flush=True,
        )
if rank == 0:
    print(json.dumps({"engine": "Gloo, PyTorch " + torch.__version__}))
dist.destroy_process_group()
