// The splits of `test/campaigns/leaks.mjs` from C++: what NCCL and the driver keep by themselves. A rank per GPU, as threads of
// one process or as processes. Says every 50 splits what each device has less of than after the warm-up, and the process's
// resident memory.
// Build: nvcc -O2 -o nccl-splits nccl-splits.cpp -lnccl    Run: ./nccl-splits RANKS SPLITS thread|process [share] [streams] [together]
// share: groups share their parent's threads (splitShare). streams: a stream of its own for each group.
// together: first 2, 4, 6 and 8 groups at once.
#include <cuda_runtime.h>
#include <nccl.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <vector>
#define CUDA(x) do { auto e = (x); if (e != cudaSuccess) { fprintf(stderr, "%s: %s\n", #x, cudaGetErrorString(e)); _exit(1); } } while (0)
#define NCCL(x) do { auto e = (x); if (e != ncclSuccess) { fprintf(stderr, "%s: %s\n", #x, ncclGetErrorString(e)); _exit(1); } } while (0)
static const int WARM = 8, CALL_EVERY = 10, CALL_FIRST = 6, TELL_EVERY = 50;
struct Shared { pthread_barrier_t barrier; ncclUniqueId id; };
static Shared* shared;

static double residentMiB() {
  long pages = 0;
  FILE* f = fopen("/proc/self/statm", "r");
  if (f == nullptr || fscanf(f, "%*d %ld", &pages) != 1) pages = -1;
  if (f != nullptr) fclose(f);
  return pages * 4096.0 / (1 << 20);
}

static void rankMain(int rank, int ranks, int splits, bool share, bool streams, bool together) {
  CUDA(cudaSetDevice(rank));
  if (rank == 0) NCCL(ncclGetUniqueId(&shared->id));
  pthread_barrier_wait(&shared->barrier);
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.splitShare = share ? 1 : 0;
  ncclComm_t comm;
  NCCL(ncclCommInitRankConfig(&comm, ranks, shared->id, rank, &config));
  cudaStream_t stream;
  CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  float* x;
  CUDA(cudaMalloc(&x, 1024));
  auto split = [&](int i) {
    ncclComm_t child;
    cudaStream_t own = stream;
    if (streams) CUDA(cudaStreamCreateWithFlags(&own, cudaStreamNonBlocking));
    NCCL(ncclCommSplit(comm, i % 2 == 0 ? 0 : rank % 2, i % 3 == 0 ? ranks - rank : rank, &child, &config));
    if (i % CALL_EVERY == 0 || i < CALL_FIRST) {
      NCCL(ncclAllReduce(x, x, 256, ncclFloat, ncclSum, child, own));
      CUDA(cudaStreamSynchronize(own));
    }
    NCCL(ncclCommDestroy(child));
    if (streams) CUDA(cudaStreamDestroy(own));
    pthread_barrier_wait(&shared->barrier);
  };
  auto freeBytes = [&] {
    size_t free = 0, total = 0;
    CUDA(cudaDeviceSynchronize());
    pthread_barrier_wait(&shared->barrier);
    CUDA(cudaMemGetInfo(&free, &total));
    pthread_barrier_wait(&shared->barrier);
    return free;
  };
  // The main communicator connects by a call of its own, as the program's barrier does.
  NCCL(ncclAllReduce(x, x, 256, ncclFloat, ncclSum, comm, stream));
  CUDA(cudaStreamSynchronize(stream));
  for (int i = 0; i < WARM; i++) split(i);
  size_t before = freeBytes();
  for (int count = 2; together && count <= 8; count += 2) {
    // What the driver keeps of the most groups that there ever were at once.
    std::vector<ncclComm_t> children(count);
    for (auto& child : children) {
      NCCL(ncclCommSplit(comm, 0, rank, &child, &config));
      NCCL(ncclAllReduce(x, x, 256, ncclFloat, ncclSum, child, stream));
      CUDA(cudaStreamSynchronize(stream));
    }
    for (auto& child : children) NCCL(ncclCommDestroy(child));
    printf("rank %d: %d groups at once, then device %.2f MiB\n", rank, count, ((double)before - (double)freeBytes()) / (1 << 20));
    fflush(stdout);
  }
  double resident = residentMiB();
  auto began = std::chrono::steady_clock::now();
  for (int i = 0; i < splits; i++) {
    split(i);
    if ((i + 1) % TELL_EVERY != 0 && i + 1 != splits) continue;
    double less = (double)before - (double)freeBytes();
    double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
    printf("rank %d: %d of %d, %.1f s, device %.2f MiB, RSS %.1f MiB\n", rank, i + 1, splits, seconds, less / (1 << 20), residentMiB() - resident);
    fflush(stdout);
  }
  NCCL(ncclCommDestroy(comm));
}

int main(int argc, char** argv) {
  if (argc < 4) { fprintf(stderr, "usage: %s RANKS SPLITS thread|process [share] [streams] [together]\n", argv[0]); return 2; }
  int ranks = atoi(argv[1]), splits = atoi(argv[2]);
  bool processes = strcmp(argv[3], "process") == 0, share = false, streams = false, together = false;
  for (int i = 4; i < argc; i++) {
    share |= strcmp(argv[i], "share") == 0;
    together |= strcmp(argv[i], "together") == 0;
    streams |= strcmp(argv[i], "streams") == 0;
  }
  shared = (Shared*)mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  pthread_barrierattr_t attributes;
  pthread_barrierattr_init(&attributes);
  pthread_barrierattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
  pthread_barrier_init(&shared->barrier, &attributes, ranks);
  if (!processes) {
    std::vector<std::thread> threads;
    for (int rank = 0; rank < ranks; rank++) threads.emplace_back(rankMain, rank, ranks, splits, share, streams, together);
    for (auto& thread : threads) thread.join();
    return 0;
  }
  for (int rank = 0; rank < ranks; rank++) {
    if (fork() == 0) { rankMain(rank, ranks, splits, share, streams, together); _exit(0); }
  }
  int failed = 0, status = 0;
  for (int rank = 0; rank < ranks; rank++) { wait(&status); failed |= status != 0; }
  return failed;
}
