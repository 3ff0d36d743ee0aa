// The same NCCL calls as `bench/nccl-overhead.mjs`, from C++: one process, a thread per GPU. Prints one JSON document.
// Build: nvcc -O2 -o nccl-loop nccl-loop.cpp -lnccl    Run: ./nccl-loop RANKS SIZE_BYTES...
#include <cuda_runtime.h>
#include <nccl.h>
#include <atomic>
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>
#define CUDA(x) do { auto e = (x); if (e != cudaSuccess) { fprintf(stderr, "%s: %s\n", #x, cudaGetErrorString(e)); exit(1); } } while (0)
#define NCCL(x) do { auto e = (x); if (e != ncclSuccess) { fprintf(stderr, "%s: %s\n", #x, ncclGetErrorString(e)); exit(1); } } while (0)
using Clock = std::chrono::steady_clock;
static double us(Clock::time_point a, Clock::time_point b) { return std::chrono::duration<double, std::micro>(b - a).count(); }
static std::atomic<int> entered{0};
static std::atomic<int> turn{0};
static void meet(int n) {  // all threads of the process
  int t = turn.load();
  if (entered.fetch_add(1) + 1 == n) { entered.store(0); turn.store(t + 1); } else while (turn.load() == t) std::this_thread::yield();
}
static double median(std::vector<double> v) { std::sort(v.begin(), v.end()); return v[v.size() / 2]; }

int main(int argc, char** argv) {
  int n = atoi(argv[1]);
  std::vector<size_t> sizes;
  for (int i = 2; i < argc; i++) sizes.push_back(strtoull(argv[i], nullptr, 10));
  ncclUniqueId id;
  NCCL(ncclGetUniqueId(&id));
  std::vector<std::string> rows(sizes.size());
  std::vector<std::thread> threads;
  for (int r = 0; r < n; r++) threads.emplace_back([&, r] {
    CUDA(cudaSetDevice(r));
    cudaStream_t s;
    CUDA(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking));
    ncclComm_t comm;
    NCCL(ncclCommInitRank(&comm, n, id, r));
    size_t most = *std::max_element(sizes.begin(), sizes.end());
    float *in, *out;
    CUDA(cudaMalloc(&in, most));
    CUDA(cudaMalloc(&out, most));
    CUDA(cudaMemset(in, 0, most));
    for (size_t i = 0; i < sizes.size(); i++) {
      size_t count = sizes[i] / 4;
      int iterations = sizes[i] <= (1 << 20) ? 200 : 30;
      for (int w = 0; w < 10; w++) {
        for (int k = 0; k < iterations; k++) NCCL(ncclAllReduce(in, out, count, ncclFloat, ncclSum, comm, s));
        CUDA(cudaStreamSynchronize(s));
      }
      std::vector<double> back, issue, wait, graphs;
      for (int repeat = 0; repeat < 9; repeat++) {
        meet(n);
        auto a = Clock::now();
        for (int k = 0; k < iterations; k++) NCCL(ncclAllReduce(in, out, count, ncclFloat, ncclSum, comm, s));
        issue.push_back(us(a, Clock::now()) / iterations);
        CUDA(cudaStreamSynchronize(s));
        back.push_back(us(a, Clock::now()) / iterations);
      }
      for (int repeat = 0; repeat < 9; repeat++) {
        meet(n);
        auto a = Clock::now();
        for (int k = 0; k < 50; k++) { NCCL(ncclAllReduce(in, out, count, ncclFloat, ncclSum, comm, s)); CUDA(cudaStreamSynchronize(s)); }
        wait.push_back(us(a, Clock::now()) / 50);
      }
      cudaGraph_t graph;
      cudaGraphExec_t exec;
      CUDA(cudaStreamBeginCapture(s, cudaStreamCaptureModeThreadLocal));
      for (int k = 0; k < 20; k++) NCCL(ncclAllReduce(in, out, count, ncclFloat, ncclSum, comm, s));
      CUDA(cudaStreamEndCapture(s, &graph));
      CUDA(cudaGraphInstantiate(&exec, graph, 0));
      for (int repeat = 0; repeat < 10; repeat++) {
        meet(n);
        auto a = Clock::now();
        for (int k = 0; k < 5; k++) CUDA(cudaGraphLaunch(exec, s));
        CUDA(cudaStreamSynchronize(s));
        if (repeat > 0) graphs.push_back(us(a, Clock::now()) / 100);
      }
      CUDA(cudaGraphExecDestroy(exec));
      CUDA(cudaGraphDestroy(graph));
      if (r == 0) {
        char text[256];
        snprintf(text, sizeof text, "{\"sizeBytes\":%zu,\"backToBackUs\":%.2f,\"issueUs\":%.2f,\"waitUs\":%.2f,\"graphUs\":%.2f}", sizes[i], median(back), median(issue), median(wait), median(graphs));
        rows[i] = text;
      }
    }
    meet(n);
    NCCL(ncclCommDestroy(comm));
  });
  for (auto& t : threads) t.join();
  printf("{\"rows\":[");
  for (size_t i = 0; i < rows.size(); i++) printf("%s%s", i ? "," : "", rows[i].c_str());
  printf("]}\n");
}
