"""Times the MSCCL++ DSL on conformance traces: python3 reference.py MSCCLPP_PYTHON_FOLDER TRACES.jsonl.gz OUT.json

MSCCLPP_PYTHON_FOLDER is `python/` of a checkout of microsoft/mscclpp at v0.9.0; only mscclpp.language is imported.
Each program is built and printed in this process, several times; the best CPU time counts (the machine may be busy). OUT.json: [[id, ms], ...].
"""

import gzip
import json
import sys
import time

sys.path.insert(0, sys.argv[1])

import mscclpp.language.internal.operations as operations  # noqa: E402
from mscclpp.language import collectives  # noqa: E402
from mscclpp.language.channel import MemoryChannel, PortChannel, SwitchChannel  # noqa: E402
from mscclpp.language.internal.types import BufferType, Chunk, ReduceOperationType, SyncType  # noqa: E402
from mscclpp.language.loop import LoopIterationContext  # noqa: E402
from mscclpp.language.program import CollectiveProgram  # noqa: E402
from mscclpp.language.rank import Buffer, Rank, Semaphore  # noqa: E402
from mscclpp.language.thread_block_group import ThreadBlockGroup  # noqa: E402
from mscclpp.language.utils import ReplicationPolicy  # noqa: E402

BUFFERS = {"i": BufferType.input, "o": BufferType.output, "s": BufferType.scratch}
OPS = {name: ReduceOperationType[name] for name in ("sum", "min", "max")}


def chunk(c):
    return Chunk(c[0], BUFFERS[c[1]], c[2], c[3])


def collective(c):
    if c["kind"] == "TestCollective":
        return collectives.TestCollective(c["num_ranks"], c["input_size"], c["output_size"])
    return getattr(collectives, c["kind"])(c["num_ranks"], c["chunk_factor"], c["inplace"])


def build(trace):
    operations.BarrierOperation._BarrierOperation__current_barriers.clear()
    p = trace["program"]
    policy = ReplicationPolicy.interleaved if p["replication_policy"] == "interleaved" else ReplicationPolicy.none
    program = CollectiveProgram(
        p["name"], collective(p["collective"]), p["num_ranks"], p["instances"], p["protocol"], p["instr_fusion"],
        p["auto_sync"], policy, p["reuse_resources"], p["num_threads_per_block"], p["use_double_scratch_buffer"],
        p["buffer_alignment"], int(p["min_message_size"]), int(p["max_message_size"]),
    )  # fmt: skip
    with program:
        channels, semaphores, loop = {}, {}, None
        for c in trace["calls"]:
            op = c["op"]
            where = {}
            if c.get("tbg") is not None:
                where["tb_group"] = ThreadBlockGroup(c["tbg"])
            if c.get("tb") is not None:
                where["tb"] = c["tb"]
            sync = getattr(SyncType, c["data_sync"]) if "data_sync" in c else None
            if op == "Buffer":
                Buffer(c["rank"], c["size"])
            elif op == "Semaphore":
                semaphores[c["id"]] = Semaphore(c["rank"], c["initial_value"])
            elif op == "MemoryChannel":
                channels[c["id"]] = MemoryChannel(c["dst"], c["src"])
            elif op == "PortChannel":
                channels[c["id"]] = PortChannel(c["dst"], c["src"])
            elif op == "SwitchChannel":
                channels[c["id"]] = SwitchChannel(c["ranks"], BUFFERS[c["buffer"]])
            elif op in ("copy", "copy_packets", "unpack_packets"):
                getattr(Rank(c["rank"]), op)(chunk(c["dst"]), chunk(c["src"]), **where)
            elif op == "reduce":
                dst = chunk(c["dst"]) if c.get("dst") else None
                others = [chunk(x) for x in c["others"]]
                Rank(c["rank"]).reduce(
                    chunk(c["src"]), others, dst_chunk=dst, reduce_op=OPS[c["reduce_op"]], packet=c["packet"], **where
                )
            elif op == "barrier":
                Rank(c["rank"]).barrier(c["tb_list"])
            elif op == "sem_acquire":
                semaphores[c["sem"]].acquire(c["tb"], sync)
            elif op == "sem_release":
                semaphores[c["sem"]].release(c["tb"], sync)
            elif op in ("signal", "wait"):
                relaxed = (c["relaxed"],) if "relaxed" in c else ()
                getattr(channels[c["ch"]], op)(c["tb"], sync, *relaxed)
            elif op == "flush":
                channels[c["ch"]].flush(c["tb"], sync)
            elif op == "ch_reduce":
                dst = chunk(c["local_dst"]) if c.get("local_dst") else None
                remote = [chunk(x) for x in c["remote_srcs"]]
                channels[c["ch"]].reduce(
                    chunk(c["local_src"]), remote, local_dst_chunk=dst, reduce_op=OPS[c["reduce_op"]], **where
                )
            elif op == "sw_reduce":
                channels[c["ch"]].reduce(
                    c["rank"], c["offset"], c["size"], chunk(c["dst"]), c["tb"], OPS[c["reduce_op"]]
                )
            elif op in ("sw_broadcast", "sw_broadcast_packets"):
                call = getattr(channels[c["ch"]], op[3:])
                call(c["rank"], chunk(c["src"]), c["offset"], c["size"], c["tb"])
            elif op == "loop_begin":
                loop = LoopIterationContext(c["unit"], c["num_chunks"])
                loop.__enter__()
            elif op == "loop_end":
                loop.__exit__(None, None, None)
            else:
                getattr(channels[c["ch"]], op)(chunk(c["dst"]), chunk(c["src"]), **where)
        return program.to_json(indent=2)


if __name__ == "__main__":
    times = []
    with gzip.open(sys.argv[2], "rt") as lines:
        for line in lines:
            record = json.loads(line)
            if "error" in record:
                continue
            best, runs, start = float("inf"), 0, time.process_time()
            while runs < 3 or (time.process_time() - start < 0.05 and runs < 50):
                begin = time.process_time()
                build(record["trace"])
                best = min(best, time.process_time() - begin)
                runs += 1
            times.append([record.get("id", record.get("case")), best * 1e3])
    with open(sys.argv[3], "w") as out:
        json.dump(times, out)
