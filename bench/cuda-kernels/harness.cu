// Times generated kernels and NCCL on GPUs of one process by graph replay, and checks every result. Ranks are dealt out to the
// GPUs that there are: with fewer, blocks of all ranks must fit, NCCL is left out, and times say nothing of links.
// Build and run: bench/cuda-kernels/README.md. Every wait of a kernel is bounded (the sources are debug builds).
#include <cuda.h>
#include <cuda_runtime.h>
#include <dlfcn.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#define MUST(call)                                                                                     \
  do {                                                                                                 \
    const int status = (int)(call);                                                                    \
    if (status != 0) { fprintf(stderr, "%s:%d: %s gives %d\n", __FILE__, __LINE__, #call, status); exit(4); } \
  } while (0)

typedef unsigned long long u64;
typedef unsigned int u32;
#ifndef RANKS
#define RANKS 2
#endif
constexpr int N = RANKS;
static int numDevices = 1;
static int dev(int rank) { return rank % numDevices; }
enum Op { ALL_REDUCE, ALL_GATHER, REDUCE_SCATTER };
static const char* const OPS[] = {"all_reduce", "all_gather", "reduce_scatter"};

// Inputs follow from rank, position and seed, so that nothing has to be kept to check results.
__device__ float valueOf(int rank, u64 i, u32 seed) {
  u64 x = i * 0x9e3779b97f4a7c15ull + (u64)(rank + 1) * 0xbf58476d1ce4e5b9ull + seed * 0x94d049bb133111ebull;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
  return (float)((int)(x >> 41) - (1 << 22)) / (float)(1 << 22);
}
__device__ unsigned short toBf16(float x) {
  const u32 bits = __float_as_uint(x);
  return (unsigned short)((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
}
__device__ float fromBf16(unsigned short x) { return __uint_as_float((u32)x << 16); }
__device__ float input(int rank, u64 i, u32 seed, bool small) {
  const float v = valueOf(rank, i, seed);
  return small ? fromBf16(toBf16(v)) : v;
}
__global__ void fill(char* at, u64 elements, int rank, u32 seed, bool small) {
  for (u64 i = blockIdx.x * (u64)blockDim.x + threadIdx.x; i < elements; i += gridDim.x * (u64)blockDim.x) {
    const float v = valueOf(rank, i, seed);
    if (small) ((unsigned short*)at)[i] = toBf16(v);
    else ((float*)at)[i] = v;
  }
}
// Compares with a sum in float64. One rounding of the result, and f32 sums below it.
__global__ void check(const char* at, const char* other, u64 elements, int op, int rank, u64 part, u32 seed, bool small, u64* wrong) {
  for (u64 i = blockIdx.x * (u64)blockDim.x + threadIdx.x; i < elements; i += gridDim.x * (u64)blockDim.x) {
    const double got = small ? fromBf16(((const unsigned short*)at)[i]) : ((const float*)at)[i];
    double want = 0, size = 0;
    if (op == ALL_GATHER) want = input((int)(i / part), i % part, seed, small);
    else
      for (int r = 0; r < N; r++) {
        const double v = input(r, op == REDUCE_SCATTER ? rank * part + i : i, seed, small);
        want += v;
        size += v < 0 ? -v : v;
      }
    const double bound = op == ALL_GATHER ? 0 : small ? fabs(want) / 256 + size * 1.2e-7 : size * 1.2e-7;
    bool bad = !(fabs(got - want) <= bound);
    if (op == ALL_REDUCE && other != nullptr)
      bad = bad || (small ? ((const unsigned short*)at)[i] != ((const unsigned short*)other)[i] : ((const u32*)at)[i] != ((const u32*)other)[i]);
    if (bad) atomicAdd(wrong, 1ull);
  }
}

struct Size { u64 bytes, part, chunk, scratch, packets, scratchSlot, packetsSlot, slots, packetChunk, window; };
struct Kernel {
  int id, op, threads, blocks;
  bool small;
  u64 windowHead, stateWords, report;
  std::string label;
  std::vector<Size> sizes;
  CUfunction function[N];
};
struct Row { std::string label; double us; u64 wrong; };

static char *inputs[N], *outputs[N], *windows[N];
static u32 *states[N], *aborts[N];
static u64* wrongs;
static cudaStream_t streams[N];
static std::atomic<int> gate{0};

// NCCL by hand: its header need not be there.
typedef void* Comm;
static int (*ncclCommInitAll)(Comm*, int, const int*);
static int (*ncclGroupStart)();
static int (*ncclGroupEnd)();
static int (*ncclAllReduce)(const void*, void*, size_t, int, int, Comm, cudaStream_t);
static int (*ncclAllGather)(const void*, void*, size_t, int, Comm, cudaStream_t);
static int (*ncclReduceScatter)(const void*, void*, size_t, int, int, Comm, cudaStream_t);
static Comm comms[N];

static u64 inputBytes(int op, u64 bytes) { return op == ALL_GATHER ? bytes / N : bytes; }
static u64 outputBytes(int op, u64 bytes) { return op == REDUCE_SCATTER ? bytes / N : bytes; }

template <class Launch> static void capture(cudaGraphExec_t (&graphs)[N], int calls, Launch launch) {
  for (int d = 0; d < N; d++) { MUST(cudaSetDevice(dev(d))); MUST(cudaStreamBeginCapture(streams[d], cudaStreamCaptureModeRelaxed)); }
  for (int i = 0; i < calls; i++) launch();
  for (int d = 0; d < N; d++) {
    cudaGraph_t graph;
    MUST(cudaSetDevice(dev(d)));
    MUST(cudaStreamEndCapture(streams[d], &graph));
    MUST(cudaGraphInstantiate(&graphs[d], graph, 0));
    MUST(cudaGraphDestroy(graph));
  }
}
// Replays on both devices at once. Microseconds of the slower one.
static double replay(cudaGraphExec_t (&graphs)[N], int times) {
  float ms[N] = {};
  std::vector<std::thread> threads;
  gate = 0;
  for (int d = 0; d < N; d++)
    threads.emplace_back([&, d] {
      MUST(cudaSetDevice(dev(d)));
      cudaEvent_t begin, end;
      MUST(cudaEventCreate(&begin));
      MUST(cudaEventCreate(&end));
      gate++;
      while (gate < N) {}
      MUST(cudaEventRecord(begin, streams[d]));
      for (int i = 0; i < times; i++) MUST(cudaGraphLaunch(graphs[d], streams[d]));
      MUST(cudaEventRecord(end, streams[d]));
      MUST(cudaStreamSynchronize(streams[d]));
      MUST(cudaEventElapsedTime(&ms[d], begin, end));
      cudaEventDestroy(begin);
      cudaEventDestroy(end);
    });
  for (auto& t : threads) t.join();
  return 1000.0 * *std::max_element(ms, ms + N);
}
template <class Launch> static Row measure(const std::string& label, int op, bool small, u64 bytes, Launch launch) {
  static u32 seed = (u32)time(nullptr);
  const int size = small ? 2 : 4;
  const int calls = bytes <= 1 << 20 ? 100 : bytes <= 64 << 20 ? 20 : 5;
  for (int d = 0; d < N; d++) {
    MUST(cudaSetDevice(dev(d)));
    fill<<<1024, 256, 0, streams[d]>>>(inputs[d], inputBytes(op, bytes) / size, d, seed, small);
    MUST(cudaMemsetAsync(outputs[d], 0xff, outputBytes(op, bytes), streams[d]));
  }
  for (int d = 0; d < N; d++) { MUST(cudaSetDevice(dev(d))); MUST(cudaStreamSynchronize(streams[d])); }
  cudaGraphExec_t graphs[N];
  capture(graphs, calls, launch);
  replay(graphs, 1);
  *wrongs = 0;
  for (int d = 0; d < N; d++) {
    MUST(cudaSetDevice(dev(d)));
    check<<<1024, 256, 0, streams[d]>>>(outputs[d], d == 0 ? outputs[1] : nullptr, outputBytes(op, bytes) / size, op, d,
                                        (op == ALL_REDUCE ? bytes : bytes / N) / size, seed, small, wrongs);
    MUST(cudaStreamSynchronize(streams[d]));
  }
  seed++;
  std::vector<double> times;
  const int repeats = bytes <= 64 << 20 ? 7 : 5, turns = bytes <= 1 << 20 ? 3 : 1;
  for (int i = 0; i < repeats; i++) times.push_back(replay(graphs, turns) / (calls * turns));
  std::sort(times.begin(), times.end());
  for (int d = 0; d < N; d++) MUST(cudaGraphExecDestroy(graphs[d]));
  return {label, times[times.size() / 2], *wrongs};
}

static std::vector<Kernel> readManifest(const std::string& folder) {
  std::ifstream file(folder + "/manifest");
  std::vector<Kernel> kernels;
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    std::string what, op, dtype;
    words >> what;
    if (what == "kernel") {
      Kernel k;
      words >> k.id >> op >> dtype >> k.threads >> k.blocks >> k.windowHead >> k.stateWords >> k.report >> k.label;
      for (int i = 0; i < 3; i++) if (op == OPS[i]) k.op = i;
      k.small = dtype == "bf16";
      kernels.push_back(k);
    } else {
      Size s;
      words >> s.bytes >> s.part >> s.chunk >> s.scratch >> s.packets >> s.scratchSlot >> s.packetsSlot >> s.slots >> s.packetChunk >> s.window;
      kernels.back().sizes.push_back(s);
    }
  }
  return kernels;
}

int main(int argc, char** argv) {
  const std::string folder = argv[1];
  const u64 most = argc > 2 ? strtoull(argv[2], nullptr, 10) : 1ull << 30;
  auto kernels = readManifest(folder);
  MUST(cudaGetDeviceCount(&numDevices));
  numDevices = std::min(numDevices, N);
  printf("%d devices\n", numDevices);
  for (int d = 0; d < N; d++) {
    MUST(cudaSetDevice(dev(d)));
    MUST(cudaFree(nullptr));
    if (d < numDevices) for (int p = 0; p < std::min(N, numDevices); p++) if (p != d) MUST(cudaDeviceEnablePeerAccess(p, 0));
    MUST(cudaStreamCreateWithFlags(&streams[d], cudaStreamNonBlocking));
    u64 window = 1 << 20;
    for (auto& k : kernels) for (auto& s : k.sizes) if (s.bytes <= most) window = std::max(window, s.window);
    MUST(cudaMalloc(&inputs[d], most));
    MUST(cudaMalloc(&outputs[d], most));
    MUST(cudaMalloc(&windows[d], window));
    MUST(cudaMalloc(&states[d], 1 << 20));
    MUST(cudaMalloc(&aborts[d], 4));
    MUST(cudaMemset(aborts[d], 0, 4));
    for (auto& k : kernels) {
      CUmodule module;
      MUST(cuModuleLoad(&module, (folder + "/k" + std::to_string(k.id) + ".cubin").c_str()));
      MUST(cuModuleGetFunction(&k.function[d], module, "chorale_plan"));
      int fit = 0;
      MUST(cuOccupancyMaxActiveBlocksPerMultiprocessor(&fit, k.function[d], k.threads, 0));
      if (fit * 132 < k.blocks * (N / numDevices)) { printf("does not fit: %s\n", k.label.c_str()); k.sizes.clear(); }
    }
  }
  MUST(cudaHostAlloc(&wrongs, 8, cudaHostAllocPortable));
  void* nccl = dlopen("libnccl.so.2", RTLD_NOW);
  if (numDevices < N) nccl = nullptr;
  if (nccl != nullptr) {
    *(void**)&ncclCommInitAll = dlsym(nccl, "ncclCommInitAll");
    *(void**)&ncclGroupStart = dlsym(nccl, "ncclGroupStart");
    *(void**)&ncclGroupEnd = dlsym(nccl, "ncclGroupEnd");
    *(void**)&ncclAllReduce = dlsym(nccl, "ncclAllReduce");
    *(void**)&ncclAllGather = dlsym(nccl, "ncclAllGather");
    *(void**)&ncclReduceScatter = dlsym(nccl, "ncclReduceScatter");
    int devices[N];
    for (int d = 0; d < N; d++) devices[d] = d;
    MUST(ncclCommInitAll(comms, N, devices));
  }
  for (int small = 0; small < 2; small++)
    for (int op = 0; op < 3; op++)
      for (u64 bytes = 1024; bytes <= most; bytes *= 4) {
        bool any = false;
        for (auto& k : kernels) for (auto& s : k.sizes) any = any || (k.op == op && k.small == (bool)small && s.bytes == bytes);
        if (!any) continue;
        std::vector<Row> rows;
        const int type = small ? 9 : 7;  // ncclBfloat16, ncclFloat32
        const u64 size = small ? 2 : 4;
        double library = 0;
        if (nccl != nullptr) {
          const Row row = measure("nccl", op, small, bytes, [&] {
            MUST(ncclGroupStart());
            for (int d = 0; d < N; d++) {
              if (op == ALL_REDUCE) MUST(ncclAllReduce(inputs[d], outputs[d], bytes / size, type, 0, comms[d], streams[d]));
              if (op == ALL_GATHER) MUST(ncclAllGather(inputs[d], outputs[d], bytes / size / N, type, comms[d], streams[d]));
              if (op == REDUCE_SCATTER) MUST(ncclReduceScatter(inputs[d], outputs[d], bytes / size / N, type, 0, comms[d], streams[d]));
            }
            MUST(ncclGroupEnd());
          });
          library = row.us;
          rows.push_back(row);
        }
        for (auto& k : kernels) {
          if (k.op != op || k.small != (bool)small) continue;
          for (auto& s : k.sizes) {
            if (s.bytes != bytes) continue;
            for (int d = 0; d < N; d++) {
              MUST(cudaSetDevice(dev(d)));
              MUST(cudaMemset(windows[d], 0, s.window));
              MUST(cudaMemset(states[d], 0, 4 * k.stateWords));
            }
            for (int d = 0; d < N; d++) { MUST(cudaSetDevice(dev(d))); MUST(cudaDeviceSynchronize()); }
            u64 words[N][15 + N];
            for (int d = 0; d < N; d++) {
              const u64 own[] = {(u64)inputs[d], (u64)outputs[d], (u64)states[d], (u64)aborts[d], s.part, s.chunk, s.scratch,
                                 s.packets, s.scratchSlot, s.packetsSlot, s.slots, s.packetChunk, 0, (u64)d, 0};
              memcpy(words[d], own, sizeof(own));
              for (int r = 0; r < N; r++) words[d][15 + r] = (u64)windows[r];
            }
            Row row{k.label, 0, 0};
            for (int again = 0; again < 3; again++) {
            const Row one = (measure(k.label, op, small, bytes, [&] {
              for (int d = 0; d < N; d++) {
                MUST(cudaSetDevice(dev(d)));
                void* parameters[] = {words[d]};
                MUST(cuLaunchKernel(k.function[d], k.blocks, 1, 1, k.threads, 1, 1, 0, streams[d], parameters, nullptr));
              }
            }));
            row.us = one.us; row.wrong += one.wrong;
            }
            rows.push_back(row);
            for (int d = 0; d < N; d++) {
              u32 report[6];
              MUST(cudaSetDevice(dev(d)));
              MUST(cudaMemcpy(report, states[d] + k.report, sizeof(report), cudaMemcpyDefault));
              if (report[0] == 0) continue;
              printf("gave up: %s rank %d strand %u op %d.%u seen %u wanted %u\n", k.label.c_str(), d, report[1], (int)report[2], report[3], report[4], report[5]);
              MUST(cudaMemset(aborts[d], 0, 4));
            }
          }
        }
        std::sort(rows.begin(), rows.end(), [](const Row& a, const Row& b) { return a.us < b.us; });
        printf("%s %s %llu\n", OPS[op], small ? "bf16" : "f32", bytes);
        int shown = 0;
        for (auto& row : rows)
          if (row.label == "nccl" || row.label == "copies" || row.wrong != 0 || shown++ < 40)
            printf("  %9.2f us  %5.2fx  %s%s\n", row.us, library / row.us, row.label.c_str(), row.wrong != 0 ? ("  WRONG " + std::to_string(row.wrong)).c_str() : "");
        fflush(stdout);
      }
  return 0;
}
