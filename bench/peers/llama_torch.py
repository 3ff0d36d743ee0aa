"""Times Llama-shaped models with random weights in PyTorch: what the planner's predictions are compared with.

One process times tp = 1; under torchrun, WORLD_SIZE ranks share the model by tensor parallelism, with NCCL all-reduces
after attention and MLP and an all-gather of the logits. Decoding replays a CUDA graph of one step at a fixed context,
over a static KV cache, so that launch overhead does not dominate. bf16, random weights made on the device.

    python3 bench/peers/llama_torch.py --out tp1.json
    torchrun --nproc-per-node 4 bench/peers/llama_torch.py --out tp4.json
    python3 bench/peers/llama_torch.py --quick            # a tiny model on the CPU: tests this script

NVLink multicast is left off: set NCCL_NVLS_ENABLE=0 and TORCH_SYMM_MEM_DISABLE_MULTICAST=1.
"""

import argparse
import json
import os
import statistics
import sys
import time

import torch
import torch.distributed as dist
import torch.nn.functional as F

# name: hidden, layers, heads, KV heads, head_dim, MLP, vocabulary
MODELS = {
    "1b": (2048, 16, 32, 8, 64, 8192, 128256),
    "3b": (3072, 28, 24, 8, 128, 8192, 128256),
    "8b": (4096, 32, 32, 8, 128, 14336, 128256),
    "14b": (5120, 48, 40, 8, 128, 13824, 152064),
    "30b": (5120, 60, 40, 8, 128, 27648, 128256),
}
QUICK = {"tiny": (64, 2, 4, 2, 16, 96, 256)}
EPS = 1e-5


def rms_norm(x, weight):
    if hasattr(F, "rms_norm"):
        return F.rms_norm(x, (x.shape[-1],), weight, EPS)
    return x * torch.rsqrt(x.float().pow(2).mean(-1, keepdim=True) + EPS).to(x.dtype) * weight


def rotate(x, cos, sin):
    a, b = x.chunk(2, -1)
    return torch.cat((a * cos - b * sin, b * cos + a * sin), -1)


def grouped_attention(q, k, v):
    """One new token each: q [B, H, 1, D], k and v [B, Hkv, S, D]; two batched products, KV read once."""
    batch, heads, _, dim = q.shape
    kv = k.shape[1]
    scores = torch.matmul(q.view(batch, kv, heads // kv, dim), k.transpose(2, 3)) * dim**-0.5
    return torch.matmul(scores.float().softmax(-1).to(q.dtype), v).view(batch, heads, 1, dim)


def fused_attention(q, k, v):
    return F.scaled_dot_product_attention(q, k, v, enable_gqa=True)


def causal_attention(q, k, v):
    if hasattr(F, "scaled_dot_product_attention"):
        return F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
    groups = q.shape[1] // k.shape[1]
    k, v = k.repeat_interleave(groups, 1), v.repeat_interleave(groups, 1)
    scores = torch.matmul(q, k.transpose(2, 3)) * q.shape[-1] ** -0.5
    mask = torch.full(scores.shape[-2:], float("-inf")).triu(1)
    return torch.matmul((scores + mask).softmax(-1), v)


class Model:
    """One tp rank's share of the weights, and its KV cache."""

    def __init__(self, shape, rank, tp, device, dtype, seed=0):
        self.hidden, self.layers, heads, kv_heads, self.dim, columns, self.vocab = shape
        self.tp, self.device, self.dtype = tp, device, dtype
        self.heads, self.kv_heads = heads // tp, max(1, kv_heads // tp)
        on_cpu = device.type == "cpu"
        generator = torch.Generator(device="cpu").manual_seed(seed) if on_cpu else None

        def part(full, index):
            return full.chunk(tp, 0)[index]

        def matrix(out, inner, cut):
            """cut 0: this rank's rows of the output; 1: its columns of the input; None: all."""
            if on_cpu:
                # Cut out of the same full matrix on every rank, so that results can be compared over tp.
                full = torch.randn(out, inner, generator=generator) * 0.02
                if cut == 0:
                    full = part(full, rank)
                if cut == 1:
                    full = full.chunk(tp, 1)[rank]
                return full.to(dtype).contiguous()
            out, inner = (out // tp, inner) if cut == 0 else (out, inner // tp) if cut == 1 else (out, inner)
            return torch.empty(out, inner, device=device, dtype=dtype).normal_(0, 0.02)

        ones = lambda: torch.ones(self.hidden, device=device, dtype=dtype)
        self.embedding = matrix(self.vocab, self.hidden, None)
        self.blocks = []
        for _ in range(self.layers):
            q = matrix(heads * self.dim, self.hidden, 0)
            k = matrix(kv_heads * self.dim, self.hidden, 0)
            v = matrix(kv_heads * self.dim, self.hidden, 0)
            o = matrix(self.hidden, heads * self.dim, 1)
            gate = matrix(columns, self.hidden, 0)
            up = matrix(columns, self.hidden, 0)
            down = matrix(self.hidden, columns, 1)
            self.blocks.append((ones(), torch.cat((q, k, v)), o, ones(), torch.cat((gate, up)), down))
            del q, k, v, gate, up
        self.norm = ones()
        self.head = matrix(self.vocab, self.hidden, 0)
        self.cache = []
        angles = 10000.0 ** (-torch.arange(0, self.dim, 2, device=device) / self.dim)
        self.angles = torch.outer(torch.arange(16384, device=device), angles)

    def make_cache(self, batch, length):
        size = (2, batch, self.kv_heads, length, self.dim)
        self.cache = []
        for _ in range(self.layers):
            self.cache.append(torch.empty(size, device=self.device, dtype=self.dtype).normal_(0, 1))

    def reduce(self, x):
        if self.tp > 1:
            dist.all_reduce(x)
        return x

    def forward(self, tokens, start, attention):
        """tokens [B, T]; decoding (T = 1) writes its keys and values at `start` and attends to the whole cache."""
        batch, length = tokens.shape
        cos = self.angles[start : start + length].cos().to(self.dtype)
        sin = self.angles[start : start + length].sin().to(self.dtype)
        x = self.embedding[tokens]
        q_size, kv_size = self.heads * self.dim, self.kv_heads * self.dim
        for layer, (norm1, qkv, o, norm2, gate_up, down) in enumerate(self.blocks):
            q, k, v = F.linear(rms_norm(x, norm1), qkv).split((q_size, kv_size, kv_size), -1)
            shaped = lambda t, n: t.view(batch, length, n, self.dim).transpose(1, 2)
            q, k, v = shaped(q, self.heads), shaped(k, self.kv_heads), shaped(v, self.kv_heads)
            q, k = rotate(q, cos, sin), rotate(k, cos, sin)
            keys, values = self.cache[layer]
            keys[:, :, start : start + length] = k
            values[:, :, start : start + length] = v
            if length == 1:
                mixed = attention(q, keys, values)
            else:
                mixed = attention(q, k, v)
            mixed = mixed.transpose(1, 2).reshape(batch, length, q_size)
            x = x + self.reduce(F.linear(mixed, o))
            gate, up = F.linear(rms_norm(x, norm2), gate_up).chunk(2, -1)
            x = x + self.reduce(F.linear(F.silu(gate) * up, down))
        logits = F.linear(rms_norm(x[:, -1], self.norm), self.head)
        if self.tp > 1:
            shards = [torch.empty_like(logits) for _ in range(self.tp)]
            dist.all_gather(shards, logits)
            logits = torch.cat(shards, -1)
        return logits


def timed(run, repeats, cuda):
    """Milliseconds of each repeat."""
    times = []
    for _ in range(repeats):
        if cuda:
            torch.cuda.synchronize()
            begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            begin.record()
            run()
            end.record()
            end.synchronize()
            times.append(begin.elapsed_time(end))
        else:
            began = time.perf_counter()
            run()
            times.append((time.perf_counter() - began) * 1e3)
    return times


def graphed(step, cuda):
    """A function that runs the step: a replayed graph on CUDA."""
    if not cuda:
        return step
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(2):
            step()
    torch.cuda.current_stream().wait_stream(stream)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    return graph.replay


def measure(name, shape, rank, tp, device, dtype, args, rows):
    cuda = device.type == "cuda"
    model = Model(shape, rank, tp, device, dtype)
    numbers = dict(zip(("hidden", "layers", "heads", "kvHeads", "headDim", "mlp", "vocab"), shape))

    def report(phase, batch, context, times, attention):
        row = {
            "model": name,
            **numbers,
            "tp": tp,
            "phase": phase,
            "batch": batch,
            "context": context,
            "attention": attention,
            "ms": statistics.median(times),
            "minMs": min(times),
            "maxMs": max(times),
            "repeats": len(times),
        }
        rows.append(row)
        if rank == 0:
            print(json.dumps(row), flush=True)

    contexts = [(batch, args.context) for batch in args.batches]
    if not args.quick:
        contexts.append((16, 4096))
    for batch, context in contexts:
        model.make_cache(batch, context)
        tokens = torch.randint(0, model.vocab, (batch, 1), device=device, generator=generator_of(device))
        best = None
        kinds = {"grouped": grouped_attention}
        if hasattr(F, "scaled_dot_product_attention"):
            kinds["fused"] = fused_attention
        for kind, attention in kinds.items():
            run = graphed(lambda: model.forward(tokens, context - 1, attention), cuda)
            times = timed(run, args.repeats, cuda)
            del run
            # Both variants run on every rank; rank 0's median decides for all of them.
            median = torch.tensor([statistics.median(times)], device=device)
            if tp > 1:
                dist.broadcast(median, 0)
            if best is None or float(median) < best[0]:
                best = (float(median), kind, times)
        report("decode", batch, context, best[2], best[1])
    for batch in [b for b in args.batches if b * args.context <= args.max_prefill]:
        model.make_cache(batch, args.context)
        tokens = torch.randint(0, model.vocab, (batch, args.context), device=device, generator=generator_of(device))
        run = lambda: model.forward(tokens, 0, causal_attention)
        timed(run, 2, cuda)
        report("prefill", batch, args.context, timed(run, max(3, args.repeats // 4), cuda), "causal")
    if args.quick:
        model.make_cache(2, 5)
        prompt = torch.arange(8).view(2, 4) % model.vocab
        model.forward(prompt, 0, causal_attention)
        step = model.forward(torch.tensor([[4], [9]]), 4, grouped_attention)
        whole = torch.cat((prompt, torch.tensor([[4], [9]])), 1)
        # The cached step equals the last token of the whole, and every tp gives the same.
        print("checksum", rank, float(step.sum()), float((step - model.forward(whole, 0, causal_attention)).abs().max()))
    del model
    if cuda:
        torch.cuda.empty_cache()


def generator_of(device):
    return torch.Generator(device=device).manual_seed(1)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--out")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--models", default=",".join(MODELS))
    parser.add_argument("--batches", default="1,4,16,64")
    parser.add_argument("--context", type=int, default=1024)
    parser.add_argument("--max-prefill", type=int, default=16384)
    parser.add_argument("--repeats", type=int, default=20)
    parser.add_argument("--deadline", type=float, default=240, help="seconds after which no further model is begun")
    args = parser.parse_args()
    args.batches = [int(text) for text in args.batches.split(",")]
    rank, tp = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
    cuda = torch.cuda.is_available() and not args.quick
    device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0"))) if cuda else torch.device("cpu")
    if cuda:
        torch.cuda.set_device(device)
    if tp > 1:
        dist.init_process_group("nccl" if cuda else "gloo")
    if args.quick:
        args.context, args.batches, args.max_prefill, args.repeats = 32, [1, 4], 256, 3
    models = QUICK if args.quick else {name: MODELS[name] for name in args.models.split(",")}
    rows, began = [], time.time()
    with torch.no_grad():
        for name, shape in models.items():
            late = torch.tensor([1 if time.time() - began > args.deadline else 0], device=device)
            if tp > 1:
                dist.broadcast(late, 0)
            if int(late):
                break
            try:
                measure(name, shape, rank, tp, device, torch.bfloat16 if cuda else torch.float32, args, rows)
            except torch.cuda.OutOfMemoryError as error:
                print(f"{name}: {error}", file=sys.stderr)
                torch.cuda.empty_cache()
    if rank == 0 and args.out:
        document = {
            "torch": torch.__version__,
            "device": torch.cuda.get_device_name() if cuda else "cpu",
            "date": time.strftime("%Y-%m-%d"),
            "rows": rows,
        }
        with open(args.out, "w") as file:
            json.dump(document, file, indent=1)
    if tp > 1:
        dist.barrier()
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
