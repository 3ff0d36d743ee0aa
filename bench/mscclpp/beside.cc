// MSCCL++ beside NCCL on the GPUs of one host, one process each: its NCCL front end (`collectives`), or its executor with plans
// that chorale wrote (`executor`). Replay of graphs of captured calls, in turn, medians; every result checked against exact
// sums. One JSON object a line. Built against MSCCL++'s static library; README.md beside this says how.
//   beside collectives [--ranks 2] [--to BYTES] [--dtypes f32,bf16]
//   beside executor FOLDER [--ranks 2]       FOLDER/manifest: NAME COLLECTIVE a line; FOLDER/NAME.json: the plan
// NVLink multicast is never used: the variables below, and functions of that name here that refuse.
#include <cuda.h>
#include <cuda_runtime.h>
#include <dlfcn.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <functional>
#include <mscclpp/core.hpp>
#include <mscclpp/executor.hpp>
#include <mscclpp/ext/nccl/nccl.h>
#include <sstream>
#include <string>
#include <vector>

extern "C" {
CUresult cuMulticastCreate(CUmemGenericAllocationHandle*, const CUmulticastObjectProp*) { return CUDA_ERROR_NOT_SUPPORTED; }
CUresult cuMulticastAddDevice(CUmemGenericAllocationHandle, CUdevice) { return CUDA_ERROR_NOT_SUPPORTED; }
CUresult cuMulticastBindMem(CUmemGenericAllocationHandle, size_t, CUmemGenericAllocationHandle, size_t, size_t,
                            unsigned long long) {
  return CUDA_ERROR_NOT_SUPPORTED;
}
}

namespace {

[[noreturn]] void fail(const std::string& what) {
  fprintf(stderr, "beside: %s\n", what.c_str());
  _exit(1);
}
void check(cudaError_t status, const char* what) {
  if (status != cudaSuccess) fail(std::string(what) + ": " + cudaGetErrorString(status));
}
#define CUDA(call) check(call, #call)

// What the processes share: a barrier, and what one tells the others.
struct Shared {
  std::atomic<int> come, generation;
  ncclUniqueId ids[2];
  double times[8][64];
  long wrong[8];
};
Shared* shared;
int numRanks = 2, rank = 0;

void meet() {
  const int generation = shared->generation.load();
  if (shared->come.fetch_add(1) == numRanks - 1) {
    shared->come = 0;
    shared->generation++;
    return;
  }
  const auto begin = std::chrono::steady_clock::now();
  while (shared->generation.load() == generation)
    if (std::chrono::steady_clock::now() - begin > std::chrono::seconds(60)) fail("a rank did not come");
}

// NCCL itself, whose names MSCCL++'s front end has too.
struct Nccl {
  decltype(&ncclGetUniqueId) getUniqueId;
  decltype(&ncclCommInitRank) commInitRank;
  decltype(&ncclAllReduce) allReduce;
  decltype(&ncclAllGather) allGather;
  ncclComm_t comm;
  Nccl() {
    const char* const path = getenv("CHORALE_NCCL_LIBRARY");
    void* const library = dlopen(path ? path : "libnccl.so.2", RTLD_NOW | RTLD_LOCAL | RTLD_DEEPBIND);
    if (!library) fail(dlerror());
    const auto find = [&](const char* name) {
      void* const found = dlsym(library, name);
      if (!found) fail(name);
      return found;
    };
    getUniqueId = (decltype(getUniqueId))find("ncclGetUniqueId");
    commInitRank = (decltype(commInitRank))find("ncclCommInitRank");
    allReduce = (decltype(allReduce))find("ncclAllReduce");
    allGather = (decltype(allGather))find("ncclAllGather");
  }
};

struct Type {
  const char* name;
  ncclDataType_t nccl;
  mscclpp::DataType own;
  size_t bytes;
};
const Type TYPES[] = {{"f32", ncclFloat32, mscclpp::DataType::FLOAT32, 4},
                      {"bf16", ncclBfloat16, mscclpp::DataType::BFLOAT16, 2}};

// Values of few bits, so that sums are exact; a period that no unit divides.
float valueOf(size_t i, int of, int turn) { return (float)((long)((i * 7 + of * 3 + turn) % 61) - 30); }
uint32_t bitsOf(float value) {
  uint32_t bits;
  memcpy(&bits, &value, 4);
  return bits;
}
void put(char* to, const Type& type, float value) {
  const uint32_t bits = bitsOf(value);
  if (type.bytes == 4) memcpy(to, &bits, 4);
  else {
    const uint16_t high = bits >> 16;
    memcpy(to, &high, 2);
  }
}

struct Buffers {
  char *in, *out;
};
void fill(const Buffers& at, size_t inBytes, size_t outBytes, const Type& type, int turn) {
  const size_t tile = std::min(inBytes, 61 * type.bytes << 14);
  std::vector<char> first(tile);
  for (size_t i = 0; i < tile / type.bytes; i++) put(&first[i * type.bytes], type, valueOf(i % 61, rank, turn));
  CUDA(cudaMemcpy(at.in, first.data(), tile, cudaMemcpyHostToDevice));
  for (size_t b = tile; b < inBytes; b += tile)
    CUDA(cudaMemcpy(at.in + b, at.in, std::min(tile, inBytes - b), cudaMemcpyDeviceToDevice));
  CUDA(cudaMemset(at.out, 0xff, outBytes));
}
// Elements of the output that are wrong, all of it to 64 MiB, the first and last 32 MiB above.
long wrongOf(const Buffers& at, const std::string& op, size_t inBytes, size_t outBytes, const Type& type, int turn) {
  long wrong = 0;
  const size_t most = 64u << 20;
  std::vector<std::pair<size_t, size_t>> pieces = {{0, std::min(outBytes, most)}};
  if (outBytes > most) pieces = {{0, most / 2}, {outBytes - most / 2, most / 2}};
  for (const auto& [from, bytes] : pieces) {
    std::vector<char> got(bytes);
    CUDA(cudaMemcpy(got.data(), at.out + from, bytes, cudaMemcpyDeviceToHost));
    for (size_t b = 0; b < bytes; b += type.bytes) {
      const size_t i = (from + b) / type.bytes;
      const size_t part = inBytes / type.bytes;
      float value = 0;
      if (op == "all_gather") value = valueOf(i % part, (int)(i / part), turn);
      else
        for (int of = 0; of < numRanks; of++)
          value += valueOf(op == "all_reduce" ? i : i + rank * (outBytes / type.bytes), of, turn);
      char want[4];
      put(want, type, value);
      if (memcmp(want, &got[b], type.bytes) != 0) wrong++;
    }
  }
  return wrong;
}

struct Contender {
  std::string name;
  std::function<void(cudaStream_t)> call;
  cudaGraphExec_t graph = nullptr;
  std::vector<double> times;
  long wrong = 0;
};

int callsOf(size_t bytes) { return bytes <= (1u << 20) ? 100 : bytes <= (64u << 20) ? 20 : 5; }

void measure(const std::string& op, const Type& type, size_t bytes, size_t inBytes, size_t outBytes, const Buffers& at,
             std::vector<Contender>& all, cudaStream_t stream) {
  const int calls = callsOf(bytes), rounds = 7;
  int turn = 0;
  for (auto& one : all) {
    fill(at, inBytes, outBytes, type, ++turn);
    CUDA(cudaDeviceSynchronize());
    meet();
    one.call(stream);
    CUDA(cudaStreamSynchronize(stream));
    one.wrong = wrongOf(at, op, inBytes, outBytes, type, turn);
    meet();
    cudaGraph_t graph;
    CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    for (int k = 0; k < calls; k++) one.call(stream);
    CUDA(cudaStreamEndCapture(stream, &graph));
    CUDA(cudaGraphInstantiate(&one.graph, graph, 0));
    CUDA(cudaGraphDestroy(graph));
    meet();
    CUDA(cudaGraphLaunch(one.graph, stream));
    CUDA(cudaStreamSynchronize(stream));
  }
  for (int round = 0; round < rounds; round++)
    for (auto& one : all) {
      meet();
      const auto begin = std::chrono::steady_clock::now();
      CUDA(cudaGraphLaunch(one.graph, stream));
      CUDA(cudaGraphLaunch(one.graph, stream));
      CUDA(cudaStreamSynchronize(stream));
      const std::chrono::duration<double, std::micro> took = std::chrono::steady_clock::now() - begin;
      one.times.push_back(took.count() / (2 * calls));
    }
  for (auto& one : all) {
    // Once more by replay, on other values.
    fill(at, inBytes, outBytes, type, ++turn);
    CUDA(cudaDeviceSynchronize());
    meet();
    CUDA(cudaGraphLaunch(one.graph, stream));
    CUDA(cudaStreamSynchronize(stream));
    one.wrong += wrongOf(at, op, inBytes, outBytes, type, turn);
    std::sort(one.times.begin(), one.times.end());
    shared->times[rank][0] = one.times[one.times.size() / 2];
    shared->wrong[rank] = one.wrong;
    meet();
    if (rank == 0) {
      double us = 0;
      long wrong = 0;
      for (int r = 0; r < numRanks; r++) us = std::max(us, shared->times[r][0]), wrong += shared->wrong[r];
      printf("{\"op\":\"%s\",\"dtype\":\"%s\",\"bytes\":%zu,\"label\":\"%s\",\"us\":%.3f,\"wrong\":%ld}\n", op.c_str(),
             type.name, bytes, one.name.c_str(), us, wrong);
      fflush(stdout);
    }
    CUDA(cudaGraphExecDestroy(one.graph));
    meet();
  }
}

ncclComm_t frontEnd() {
  if (rank == 0 && ncclGetUniqueId(&shared->ids[0]) != ncclSuccess) fail("ncclGetUniqueId of MSCCL++");
  meet();
  ncclComm_t comm;
  if (ncclCommInitRank(&comm, numRanks, shared->ids[0], rank) != ncclSuccess) fail("ncclCommInitRank of MSCCL++");
  return comm;
}

void collectives(size_t to, const std::string& dtypes, const Buffers& at, cudaStream_t stream) {
  Nccl nccl;
  if (rank == 0 && nccl.getUniqueId(&shared->ids[1]) != ncclSuccess) fail("ncclGetUniqueId");
  meet();
  if (nccl.commInitRank(&nccl.comm, numRanks, shared->ids[1], rank) != ncclSuccess) fail("ncclCommInitRank");
  const ncclComm_t own = frontEnd();
  const auto must = [](ncclResult_t status, const char* what) {
    if (status != ncclSuccess) fail(what);
  };
  for (const auto& type : TYPES) {
    if (("," + dtypes + ",").find("," + std::string(type.name) + ",") == std::string::npos) continue;
    // Largest first: its front end opens a buffer's handle once, for the largest range.
    std::vector<size_t> sizes;
    for (size_t bytes = 1024; bytes <= to; bytes *= 4) sizes.insert(sizes.begin(), bytes);
    for (const size_t bytes : sizes) {
      const size_t count = bytes / type.bytes;
      std::vector<Contender> reduces(2), gathers(2);
      reduces[0] = {"nccl", [&](cudaStream_t s) {
                      must(nccl.allReduce(at.in, at.out, count, type.nccl, ncclSum, nccl.comm, s), "ncclAllReduce");
                    }};
      reduces[1] = {"mscclpp", [&](cudaStream_t s) {
                      must(ncclAllReduce(at.in, at.out, count, type.nccl, ncclSum, own, s), "MSCCL++'s all-reduce");
                    }};
      measure("all_reduce", type, bytes, bytes, bytes, at, reduces, stream);
      if (type.bytes != 4) continue;
      gathers[0] = {"nccl", [&](cudaStream_t s) {
                      must(nccl.allGather(at.in, at.out, count / numRanks, type.nccl, nccl.comm, s), "ncclAllGather");
                    }};
      gathers[1] = {"mscclpp", [&](cudaStream_t s) {
                      must(ncclAllGather(at.in, at.out, count / numRanks, type.nccl, own, s), "MSCCL++'s all-gather");
                    }};
      measure("all_gather", type, bytes, bytes / numRanks, bytes, at, gathers, stream);
    }
  }
}

void executor(const std::string& folder, const Buffers& at, cudaStream_t stream) {
  auto bootstrap = std::make_shared<mscclpp::TcpBootstrap>(rank, numRanks);
  mscclpp::UniqueId id;
  if (rank == 0) {
    id = mscclpp::TcpBootstrap::createUniqueId();
    memcpy(&shared->ids[0], id.data(), sizeof(id));
  }
  meet();
  memcpy(id.data(), &shared->ids[0], sizeof(id));
  bootstrap->initialize(id);
  const auto comm = std::make_shared<mscclpp::Communicator>(bootstrap);
  std::ifstream manifest(folder + "/manifest");
  std::string line;
  while (std::getline(manifest, line)) {
    std::istringstream words(line);
    std::string name, op;
    words >> name >> op;
    // An executor of its own for each plan: what it maps goes with it.
    mscclpp::Executor run(comm);
    const mscclpp::ExecutionPlan plan(folder + "/" + name + ".json", rank);
    for (const size_t bytes : {(size_t)4 << 20, (size_t)256 << 10, (size_t)16 << 10}) {
      const size_t in = op == "all_gather" ? bytes / numRanks : bytes, out = op == "reduce_scatter" ? bytes / numRanks : bytes;
      std::vector<Contender> one(1);
      one[0] = {name, [&](cudaStream_t s) {
                  run.execute(rank, at.in, at.out, in, out, mscclpp::DataType::FLOAT32, plan, s, mscclpp::PacketType::LL16);
                }};
      measure(op, TYPES[0], bytes, in, out, at, one, stream);
    }
    CUDA(cudaDeviceSynchronize());
    meet();
  }
}

}  // namespace

int main(int argc, char** argv) {
  std::string mode = argc > 1 ? argv[1] : "", folder, dtypes = "f32,bf16";
  size_t to = 256u << 20;
  for (int i = 2; i < argc; i++) {
    const std::string flag = argv[i];
    if (flag == "--ranks" && i + 1 < argc) numRanks = atoi(argv[++i]);
    else if (flag == "--to" && i + 1 < argc) to = strtoull(argv[++i], nullptr, 10);
    else if (flag == "--dtypes" && i + 1 < argc) dtypes = argv[++i];
    else if (mode == "executor" && folder.empty()) folder = flag;
    else mode = "";
  }
  if ((mode != "collectives" && mode != "executor") || (mode == "executor" && folder.empty()) || numRanks < 2 || numRanks > 8) {
    fprintf(stderr, "usage: beside collectives [--ranks 2..8] [--to BYTES] [--dtypes f32,bf16] | beside executor FOLDER [--ranks N]\n");
    return 2;
  }
  setenv("MSCCLPP_FORCE_DISABLE_NVLS", "true", 1);
  setenv("NCCL_NVLS_ENABLE", "0", 1);
  shared = (Shared*)mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (shared == MAP_FAILED) fail("mmap");
  std::vector<pid_t> others;
  for (int r = 1; r < numRanks; r++) {
    const pid_t pid = fork();
    if (pid == 0) {
      rank = r;
      others.clear();
      break;
    }
    others.push_back(pid);
  }
  CUDA(cudaSetDevice(rank));
  Buffers at;
  CUDA(cudaMalloc(&at.in, mode == "executor" ? 4u << 20 : to));
  CUDA(cudaMalloc(&at.out, mode == "executor" ? 4u << 20 : to));
  cudaStream_t stream;
  CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  try {
    if (mode == "collectives") collectives(to, dtypes, at, stream);
    else executor(folder, at, stream);
  } catch (const std::exception& error) {
    fail(error.what());
  }
  meet();
  int status = 0;
  for (const pid_t pid : others) {
    int one = 0;
    waitpid(pid, &one, 0);
    if (one != 0) status = 1;
  }
  // Destructors of the engines would meet again; the processes end here.
  fflush(stdout);
  _exit(status);
}
