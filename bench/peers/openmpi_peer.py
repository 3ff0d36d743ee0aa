"""The same sweep as openmpi-peer.c through mpi4py, for hosts with mpirun but no mpicc. mpi4py adds about 0.5 us a call.

mpirun --bind-to core -n N python3 openmpi_peer.py OP BYTES:ITERATIONS [BYTES:ITERATIONS ...]
"""

import json
import sys
from array import array

from mpi4py import MPI

comm = MPI.COMM_WORLD
rank, size, root = comm.Get_rank(), comm.Get_size(), 0
op = sys.argv[1]


def value(r, i):
    return float((i * 7 + r * 3) % 11)


def buffer(n):
    memory = MPI.Alloc_mem(max(4 * n, 4))
    return memory, memoryview(memory).cast("B")[: 4 * n].cast("f")


def make_call(source, target, n):
    part = n // size
    whole_in, whole_out = [source, n, MPI.FLOAT], [target, n, MPI.FLOAT]
    if op == "all_reduce":
        return lambda: comm.Allreduce(whole_in, whole_out, MPI.SUM)
    if op == "broadcast":
        return lambda: comm.Bcast(whole_in, root)
    if op == "reduce":
        return lambda: comm.Reduce(whole_in, whole_out, MPI.SUM, root)
    if op == "all_gather":
        return lambda: comm.Allgather([source, part, MPI.FLOAT], [target, part, MPI.FLOAT])
    if op == "reduce_scatter":
        # Not Reduce_scatter_block: mpi4py 3.1 refuses its counts.
        counts = [part] * size
        return lambda: comm.Reduce_scatter([source, part * size, MPI.FLOAT], [target, part, MPI.FLOAT], counts, MPI.SUM)
    if op == "all_to_all":
        return lambda: comm.Alltoall([source, part, MPI.FLOAT], [target, part, MPI.FLOAT])
    if op == "gather":
        return lambda: comm.Gather([source, part, MPI.FLOAT], [target, part, MPI.FLOAT], root)
    if op == "scatter":
        return lambda: comm.Scatter([source, part, MPI.FLOAT], [target, part, MPI.FLOAT], root)
    if op == "send":
        return lambda: comm.Sendrecv(whole_in, (rank + 1) % size, 0, whole_out, (rank - 1) % size, 0)
    raise SystemExit("unknown operation " + op)


def expected(i, n):
    """Element i of this rank's result, None where there is none."""
    part = n // size
    if op == "all_reduce" or (op == "reduce" and rank == root):
        return sum(value(r, i) for r in range(size))
    if op == "broadcast":
        return value(root, i)
    if op == "send":
        return value((rank - 1) % size, i)
    if (op == "all_gather" or (op == "gather" and rank == root)) and i < part * size:
        return value(i // part, i % part)
    if op == "all_to_all" and i < part * size:
        return value(i // part, rank * part + i % part)
    if op == "reduce_scatter" and i < part:
        return sum(value(r, rank * part + i) for r in range(size))
    if op == "scatter" and i < part:
        return value(root, rank * part + i)
    return None


for argument in sys.argv[2:]:
    bytes_, iterations = (int(x) for x in argument.split(":"))
    n = bytes_ // 4
    keep_in, source = buffer(n)
    keep_out, target = buffer(n)
    # Python loops are slow: the period of the pattern is 11, the check looks at no more than 4096 elements.
    pattern = array("f", [value(rank, i) for i in range(11)])
    source[:] = memoryview((pattern * (n // 11 + 1))[:n])
    call = make_call(source, target, n)
    call()
    result = source if op == "broadcast" else target
    step = max(1, n // 4096)
    wrong = 0
    for i in range(0, n, step):
        want = expected(i, n)
        wrong += want is not None and result[i] != want
    wrong = comm.allreduce(wrong)
    for _ in range(iterations // 10 + 2):
        call()
    comm.Barrier()
    began = MPI.Wtime()
    for _ in range(iterations):
        call()
    us = (MPI.Wtime() - began) * 1e6 / iterations
    mean = comm.reduce(us, MPI.SUM, 0)
    if rank == 0:
        print(json.dumps({"op": op, "sizeBytes": bytes_, "timeUs": mean / size, "wrong": wrong}), flush=True)
    source.release()
    target.release()
    MPI.Free_mem(keep_in)
    MPI.Free_mem(keep_out)
if rank == 0:
    print(json.dumps({"engine": MPI.Get_library_version().split(",")[0].split("\n")[0] + " (mpi4py)"}))
