// Times collectives on the GPUs of one host, in one process with a thread per GPU: NCCL's, and hand-written kernels of
// chorale's one-shot, two-shot and all-gather plans (kernels.cuh). Plain cudaMalloc and peer access; no multicast.
// What is timed is a graph of 20 calls, replayed: wall time from a meeting of all threads until the last stream is done,
// a call's share of it, median of 9. Outputs are poisoned and checked against float64 before, and checked again after.
// Build: nvcc -O3 -std=c++17 -arch=sm_90 -o collectives collectives.cu -lnccl
// Run:   NCCL_NVLS_ENABLE=0 ./collectives [RANKS [MAX_BYTES]]      prints one JSON document, as `chorale tune --fit` takes.
#include <cuda_runtime.h>
#include <nccl.h>
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>
#include <thread>
#include <vector>
#include "kernels.cuh"
#define CUDA(x) do { auto e = (x); if (e != cudaSuccess) { fprintf(stderr, "%s:%d %s: %s\n", __FILE__, __LINE__, #x, cudaGetErrorString(e)); _Exit(1); } } while (0)
#define NCCL(x) do { auto e = (x); if (e != ncclSuccess) { fprintf(stderr, "%s:%d %s: %s\n", __FILE__, __LINE__, #x, ncclGetErrorString(e)); _Exit(1); } } while (0)
using Clock = std::chrono::steady_clock;
constexpr int CALLS = 20, REPEATS = 9;

static int n = 4;
static std::atomic<int> entered{0}, turn{0};
static void meet() {
  const int t = turn.load();
  if (entered.fetch_add(1) + 1 == n) { entered.store(0); turn.store(t + 1); }
  else for (long spins = 0; turn.load() == t; spins++) if (spins > 20000000000l) { fprintf(stderr, "a thread is missing\n"); _Exit(1); }
}

struct Gpu {
  Peers peers{};
  cudaStream_t stream{};
  ncclComm_t comm{};
  unsigned long long* wrong{};
  double seconds{};
  unsigned long long bad{};
};
static std::vector<Gpu> gpus;

struct Config {
  std::string op, plan, engine;
  size_t bytes;
  int instances, blocks, unroll;
  bool inPlaceGather;
  std::function<void(Gpu&, int, size_t)> call;   // gpu, rank, elements of the larger buffer
};
struct Row { double median, least, most; unsigned long long wrong; };

static Row measure(int rank, const Config& c) {
  Gpu& g = gpus[rank];
  const size_t count = c.bytes / 4;
  const size_t part = count / n;
  const bool gather = c.op == "all_gather", scatter = c.op == "reduce_scatter", exchange = c.op == "all_to_all";
  const bool checked = c.op != "launch";
  const size_t inputs = gather ? part : count, outputs = scatter ? part : count;
  // Everybody's state back to the beginning, before anybody's kernel runs.
  CUDA(cudaMemsetAsync(g.peers.launches, 0, MAX_BLOCKS * 4, g.stream));
  CUDA(cudaMemsetAsync(g.peers.signals[rank], 0, MAX_BLOCKS * MAX_RANKS * 4, g.stream));
  CUDA(cudaMemsetAsync(g.peers.scratch[rank], 0, 2 * g.peers.half * 16, g.stream));
  CUDA(cudaMemsetAsync(g.wrong, 0, 8, g.stream));
  fill<<<528, 512, 0, g.stream>>>(g.peers.in[rank], rank, 0, inputs);
  CUDA(cudaMemsetAsync(g.peers.out[rank], 0xff, count * 4, g.stream));
  if (c.inPlaceGather) fill<<<528, 512, 0, g.stream>>>(g.peers.out[rank] + part * rank, rank, 0, part);
  CUDA(cudaStreamSynchronize(g.stream));
  meet();
  // Once outside the graph: connections are made and code is loaded now.
  c.call(g, rank, count);
  CUDA(cudaStreamSynchronize(g.stream));
  CUDA(cudaMemsetAsync(g.peers.out[rank], 0xff, count * 4, g.stream));
  if (c.inPlaceGather) fill<<<528, 512, 0, g.stream>>>(g.peers.out[rank] + part * rank, rank, 0, part);
  CUDA(cudaStreamSynchronize(g.stream));
  meet();
  cudaGraph_t graph;
  cudaGraphExec_t exec;
  CUDA(cudaStreamBeginCapture(g.stream, cudaStreamCaptureModeThreadLocal));
  for (int k = 0; k < CALLS; k++) c.call(g, rank, count);
  CUDA(cudaStreamEndCapture(g.stream, &graph));
  CUDA(cudaGraphInstantiate(&exec, graph, 0));
  CUDA(cudaGraphUpload(exec, g.stream));
  CUDA(cudaStreamSynchronize(g.stream));
  meet();
  const auto verify = [&] {
    if (!checked) return;
    check<<<528, 512, 0, g.stream>>>(g.peers.out[rank], outputs, n, rank, scatter ? part * rank : 0, gather ? 1 : exchange ? 2 : 0, g.wrong);
  };
  CUDA(cudaGraphLaunch(exec, g.stream));
  CUDA(cudaStreamSynchronize(g.stream));
  meet();
  verify();
  CUDA(cudaStreamSynchronize(g.stream));
  const int replays = c.bytes <= (1 << 20) ? 20 : c.bytes <= (1 << 24) ? 5 : 2;
  for (int w = 0; w < (c.bytes <= (1 << 20) ? 5 : 1); w++) CUDA(cudaGraphLaunch(exec, g.stream));
  CUDA(cudaStreamSynchronize(g.stream));
  std::vector<double> times;
  for (int repeat = 0; repeat < REPEATS; repeat++) {
    meet();
    const auto from = Clock::now();
    for (int k = 0; k < replays; k++) CUDA(cudaGraphLaunch(exec, g.stream));
    CUDA(cudaStreamSynchronize(g.stream));
    g.seconds = std::chrono::duration<double>(Clock::now() - from).count();
    meet();
    double most = 0;
    for (const Gpu& other : gpus) most = std::max(most, other.seconds);
    times.push_back(most * 1e6 / (replays * CALLS));
    meet();
  }
  verify();
  int error = 0;
  CUDA(cudaMemcpyAsync(&g.bad, g.wrong, 8, cudaMemcpyDeviceToHost, g.stream));
  CUDA(cudaMemcpyAsync(&error, g.peers.error, 4, cudaMemcpyDeviceToHost, g.stream));
  CUDA(cudaStreamSynchronize(g.stream));
  if (error != 0) { fprintf(stderr, "%s %s %zu: rank %d waited in vain (%d)\n", c.op.c_str(), c.plan.c_str(), c.bytes, rank, error); _Exit(1); }
  CUDA(cudaGraphExecDestroy(exec));
  CUDA(cudaGraphDestroy(graph));
  meet();
  std::sort(times.begin(), times.end());
  unsigned long long wrong = 0;
  for (const Gpu& other : gpus) wrong += other.bad;
  return {times[times.size() / 2], times.front(), times.back(), wrong};
}

static std::vector<Config> configs(size_t most) {
  std::vector<Config> list;
  const auto kernel = [&](const char* op, const char* plan, size_t bytes, int instances, int blocks, int unroll, void (*code)(Peers, size_t, int), bool inPlaceGather = false) {
    list.push_back({op, plan, "kernel", bytes, instances, blocks, unroll, inPlaceGather,
                    [=](Gpu& g, int, size_t count) { code<<<blocks, THREADS, 0, g.stream>>>(g.peers, count, instances); CUDA(cudaGetLastError()); }});
  };
  const auto nccl = [&](const char* op, size_t bytes, std::function<void(Gpu&, int, size_t)> call) {
    list.push_back({op, "", "nccl", bytes, 0, 0, 0, false, call});
  };
  for (int blocks : {1, 8, 64, 128})
    list.push_back({"launch", "", "kernel", 0, blocks, blocks, 0, false, [=](Gpu& g, int, size_t) { empty<<<blocks, THREADS, 0, g.stream>>>(); }});
  for (size_t bytes = 1024; bytes <= most; bytes *= 4) {
    nccl("all_reduce", bytes, [](Gpu& g, int rank, size_t count) { NCCL(ncclAllReduce(g.peers.in[rank], g.peers.out[rank], count, ncclFloat, ncclSum, g.comm, g.stream)); });
    nccl("all_gather", bytes, [](Gpu& g, int rank, size_t count) { NCCL(ncclAllGather(g.peers.in[rank], g.peers.out[rank], count / n, ncclFloat, g.comm, g.stream)); });
    nccl("reduce_scatter", bytes, [](Gpu& g, int rank, size_t count) { NCCL(ncclReduceScatter(g.peers.in[rank], g.peers.out[rank], count / n, ncclFloat, ncclSum, g.comm, g.stream)); });
    nccl("all_to_all", bytes, [](Gpu& g, int rank, size_t count) {
      const size_t part = count / n;
      NCCL(ncclGroupStart());
      for (int peer = 0; peer < n; peer++) {
        NCCL(ncclSend(g.peers.in[rank] + peer * part, part, ncclFloat, peer, g.comm, g.stream));
        NCCL(ncclRecv(g.peers.out[rank] + peer * part, part, ncclFloat, peer, g.comm, g.stream));
      }
      NCCL(ncclGroupEnd());
    });
    if (bytes <= (4 << 20))
      for (int instances : {1, 4, 8, 16, 32}) kernel("all_reduce", "one-shot-packet-all-reduce", bytes, instances, n * instances, 1, onePacket);
    for (int instances : {1, 8, 24, 64, 128}) {
      // A block that has nothing to do at this size says nothing; nor do few blocks at a large one.
      if (bytes / 16 / n < (size_t)instances || (bytes >= (64 << 20) && instances < 24)) continue;
      const bool wide = bytes / 16 / n / instances >= 4 * THREADS;
      kernel("all_reduce", "two-shot-read-all-reduce", bytes, instances, instances, wide ? 4 : 1, wide ? twoPlan<4> : twoPlan<1>);
      kernel("all_reduce", "two-shot-fused-read-all-reduce", bytes, instances, instances, wide ? 4 : 1, wide ? twoFused<4> : twoFused<1>);
    }
    for (int instances : {1, 8, 16, 32}) {
      if (bytes / 16 / n < (size_t)instances || (bytes >= (64 << 20) && instances < 8)) continue;
      const bool wide = bytes / 16 / n / instances >= 4 * THREADS;
      kernel("all_gather", "direct-all-gather", bytes, instances, instances * (n - 1), wide ? 4 : 1, wide ? allGather<4> : allGather<1>, true);
    }
  }
  return list;
}

int main(int argc, char** argv) {
  n = argc > 1 ? atoi(argv[1]) : 4;
  const size_t most = argc > 2 ? strtoull(argv[2], nullptr, 10) : 256ull << 20;
  setenv("NCCL_NVLS_ENABLE", "0", 1);  // on shared hosts multicast can put GPUs out of service
  int devices = 0;
  CUDA(cudaGetDeviceCount(&devices));
  if (n < 2 || n > devices || n > MAX_RANKS) { fprintf(stderr, "%d ranks, %d devices\n", n, devices); return 2; }
  gpus.resize(n);
  std::vector<float*> in(n), out(n);
  std::vector<uint4*> scratch(n);
  std::vector<unsigned*> signals(n);
  const size_t half = (size_t)n * (4 << 20) / 8;
  for (int r = 0; r < n; r++) {
    CUDA(cudaSetDevice(r));
    for (int other = 0; other < n; other++) if (other != r) CUDA(cudaDeviceEnablePeerAccess(other, 0));
    CUDA(cudaMalloc(&in[r], most));
    CUDA(cudaMalloc(&out[r], most));
    CUDA(cudaMalloc(&scratch[r], 2 * half * 16));
    CUDA(cudaMalloc(&signals[r], MAX_BLOCKS * MAX_RANKS * 4));
    CUDA(cudaMalloc(&gpus[r].peers.launches, MAX_BLOCKS * 4));
    CUDA(cudaMalloc(&gpus[r].peers.error, 4));
    CUDA(cudaMemset(gpus[r].peers.error, 0, 4));
    CUDA(cudaMalloc(&gpus[r].wrong, 8));
    CUDA(cudaStreamCreateWithFlags(&gpus[r].stream, cudaStreamNonBlocking));
  }
  for (int r = 0; r < n; r++) {
    Peers& p = gpus[r].peers;
    p.rank = r;
    p.n = n;
    p.half = half;
    for (int i = 0; i < n; i++) { p.in[i] = in[i]; p.out[i] = out[i]; p.scratch[i] = scratch[i]; p.signals[i] = signals[i]; }
  }
  ncclUniqueId id;
  NCCL(ncclGetUniqueId(&id));
  const auto list = configs(most);
  int driver = 0, runtime = 0, nccl = 0;
  CUDA(cudaDriverGetVersion(&driver));
  CUDA(cudaRuntimeGetVersion(&runtime));
  NCCL(ncclGetVersion(&nccl));
  cudaDeviceProp properties;
  CUDA(cudaGetDeviceProperties(&properties, 0));
  printf("{\"device\":\"%s\",\"numRanks\":%d,\"cudaDriver\":%d,\"cudaRuntime\":%d,\"nccl\":%d,\"callsPerGraph\":%d,\"threadsPerBlock\":%d,\"dtype\":\"f32\",\"rows\":[", properties.name, n, driver, runtime, nccl, CALLS, THREADS);
  std::vector<std::thread> threads;
  unsigned long long wrong = 0;
  for (int r = 0; r < n; r++) threads.emplace_back([&, r] {
    CUDA(cudaSetDevice(r));
    NCCL(ncclCommInitRank(&gpus[r].comm, n, id, r));
    bool first = true;
    for (const Config& c : list) {
      const Row row = measure(r, c);
      if (r != 0) continue;
      printf("%s\n{\"op\":\"%s\",\"backend\":\"%s\"", first ? "" : ",", c.op.c_str(), c.engine.c_str());
      if (!c.plan.empty()) printf(",\"plan\":\"%s\",\"instances\":%d,\"unroll\":%d", c.plan.c_str(), c.instances, c.unroll);
      if (c.blocks > 0) printf(",\"blocks\":%d", c.blocks);
      printf(",\"numRanks\":%d,\"sizeBytes\":%zu,\"timeUs\":%.3f,\"minUs\":%.3f,\"maxUs\":%.3f,\"wrong\":%llu}", n, c.bytes, row.median, row.least, row.most, row.wrong);
      fflush(stdout);
      first = false;
      wrong += row.wrong;
    }
  });
  for (auto& thread : threads) thread.join();
  printf("]}\n");
  for (Gpu& g : gpus) NCCL(ncclCommDestroy(g.comm));
  return wrong == 0 ? 0 : 1;
}
