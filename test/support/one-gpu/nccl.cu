/**
 * An NCCL whose ranks share one GPU, which NVIDIA's refuses: the functions of nccl.h 2.28 that chorale calls, for threads and
 * for processes. Right in every dtype and operator, asynchronous, and made to be captured; fast it is not. What it lacks, such
 * as ncclMemAlloc, ncclCommRegister and ncclCommShrink, it does not export, so that capabilities say so.
 * Memory for communicators is never given back: a slab that another rank's kernel may still read serves no second time.
 */
#include <cuda_runtime.h>
#include <sys/random.h>
#include <algorithm>
#include <cstdio>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <vector>
#include "kernels.cuh"

#define API extern "C" __attribute__((visibility("default")))

namespace {
enum Result { Success, CudaError, SystemError, InternalError, InvalidArgument, InvalidUsage, RemoteError, InProgress };
struct UniqueId {
  char internal[128];
};
/** The head of ncclConfig_t: no other field matters here. */
struct Config {
  size_t size;
  unsigned magic, version;
  int blocking;
};
constexpr int SIZES[] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1};
constexpr int FIRST_OWN_OP = 5, NO_COLOR = -1;

thread_local std::string lastError;
int failed(Result result, const std::string& why) {
  lastError = why;
  return result;
}
int checked(cudaError_t status, const char* what) {
  return status == cudaSuccess ? Success : failed(CudaError, std::string(what) + ": " + cudaGetErrorString(status));
}

/** Slabs and words of this process, and what other processes' are mapped at. */
class Memory {
 public:
  struct Place {
    Slab* slab;
    uint64_t base;
    cudaIpcMemHandle_t handle;
  };
  int slab(Place& place) {
    std::lock_guard<std::mutex> guard(lock_);
    if (left_ == 0) {
      if (int status = grow()) return status;
    }
    left_--;
    place = {next_++, (uint64_t)base_, handle_};
    return Success;
  }
  /** A word that ends kernels, on both sides. Each serves once. */
  int word(volatile unsigned*& host, const unsigned*& device) {
    std::lock_guard<std::mutex> guard(lock_);
    if (wordsLeft_ == 0) {
      constexpr size_t COUNT = 1 << 14;
      if (int status = checked(cudaHostAlloc((void**)&words_, COUNT * sizeof(unsigned), cudaHostAllocMapped | cudaHostAllocPortable), "cudaHostAlloc")) return status;
      memset(words_, 0, COUNT * sizeof(unsigned));
      wordsLeft_ = COUNT;
    }
    unsigned* const own = words_ + --wordsLeft_;
    host = own;
    return checked(cudaHostGetDevicePointer((void**)&device, own, 0), "cudaHostGetDevicePointer");
  }
  int find(const Seat& seat, Slab*& slab) {
    if (seat.pid == getpid()) {
      slab = (Slab*)seat.address;
      return Success;
    }
    std::lock_guard<std::mutex> guard(lock_);
    char*& base = opened_[{seat.pid, seat.address - seat.offset}];
    if (!base) {
      cudaIpcMemHandle_t handle;
      memcpy(&handle, seat.handle, sizeof handle);
      if (int status = checked(cudaIpcOpenMemHandle((void**)&base, handle, cudaIpcMemLazyEnablePeerAccess), "cudaIpcOpenMemHandle")) return status;
    }
    slab = (Slab*)(base + seat.offset);
    return Success;
  }

 private:
  int grow() {
    constexpr size_t COUNT = 64;
    cudaStream_t stream;
    // Code is loaded as long as nothing runs that could wait for this thread.
    cudaFuncAttributes attributes;
    for (const void* kernel : {(const void*)runCollective, (const void*)moveMessages<FEW_MESSAGES>, (const void*)moveMessages<MOST_MESSAGES>})
      if (int status = checked(cudaFuncGetAttributes(&attributes, kernel), "cudaFuncGetAttributes")) return status;
    if (int status = checked(cudaMalloc((void**)&base_, COUNT * sizeof(Slab)), "cudaMalloc")) return status;
    if (int status = checked(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "cudaStreamCreate")) return status;
    cudaMemsetAsync(base_, 0, COUNT * sizeof(Slab), stream);
    const int status = checked(cudaStreamSynchronize(stream), "memory of communicators");
    cudaStreamDestroy(stream);
    if (status) return status;
    next_ = base_;
    left_ = COUNT;
    return checked(cudaIpcGetMemHandle(&handle_, base_), "cudaIpcGetMemHandle");
  }

  std::mutex lock_;
  Slab *base_ = nullptr, *next_ = nullptr;
  size_t left_ = 0, wordsLeft_ = 0;
  unsigned* words_ = nullptr;
  cudaIpcMemHandle_t handle_{};
  std::map<std::pair<int, uint64_t>, char*> opened_;
};
Memory& memory() {
  // Lives as long as the process: threads may still end communicators while destructors run.
  static Memory& one = *new Memory();
  return one;
}

struct Comm {
  std::unique_ptr<Meeting> meeting;
  /** Among the seats of the meeting. */
  int seat, color;
  bool isReady = false;
  int failure = Success;
  std::string lastError;
  Group group{};
  volatile unsigned* aborted = nullptr;
  int numSplits = 0, nextOp = FIRST_OWN_OP;
  std::string name;
  struct Scale {
    double scale;
    int64_t whole;
  };
  std::map<int, Scale> ops;
};

/** Takes a seat. */
int come(Comm* comm, int key) {
  Memory::Place place;
  int status = memory().slab(place);
  if (status == Success) status = memory().word(comm->aborted, comm->group.aborted);
  if (status != Success) return status;
  Seat& seat = comm->meeting->seat(comm->seat);
  if (seat.isTaken.load() != 0) return failed(InvalidUsage, "rank " + std::to_string(comm->seat) + " is taken");
  seat.color = comm->color;
  seat.key = key;
  seat.pid = getpid();
  seat.address = (uint64_t)place.slab;
  seat.offset = (uint64_t)place.slab - place.base;
  memcpy(seat.handle, &place.handle, sizeof seat.handle);
  seat.isTaken.store(1, std::memory_order_release);
  return Success;
}

/** Looks whether all have come, and who is in the group then. */
int look(Comm* comm) {
  if (comm->isReady || comm->failure != Success) return comm->failure;
  Meeting& meeting = *comm->meeting;
  if (!meeting.isComplete()) return InProgress;
  std::vector<int> members;
  for (int seat = 0; seat < meeting.size(); seat++)
    if (meeting.seat(seat).color == comm->color) members.push_back(seat);
  std::stable_sort(members.begin(), members.end(), [&](int a, int b) { return meeting.seat(a).key < meeting.seat(b).key; });
  comm->group.size = (int)members.size();
  for (size_t rank = 0; rank < members.size() && comm->failure == Success; rank++) {
    if (members[rank] == comm->seat) comm->group.rank = (int)rank;
    comm->failure = memory().find(meeting.seat(members[rank]), comm->group.slabs[rank]);
  }
  comm->lastError = lastError;
  comm->meeting.reset();
  comm->isReady = comm->failure == Success;
  return comm->failure;
}

/** @param config null: as of a communicator that blocks */
int open(Comm* comm, int key, const Config* config) {
  if (!comm->meeting->isOpen()) return failed(SystemError, "no shared memory for " + comm->name);
  if (int status = come(comm, key)) return status;
  if (config && config->blocking == 0) return InProgress;
  constexpr int NAP_US = 50, MOST_NAPS = 60'000'000 / NAP_US;
  for (int naps = 0; look(comm) == InProgress; naps++) {
    if (naps == MOST_NAPS) return failed(SystemError, "not all ranks of " + comm->name + " have come");
    usleep(NAP_US);
  }
  return comm->failure;
}

struct Call {
  Comm* comm;
  cudaStream_t stream;
  bool isMessage;
  Collective collective;
  Message message;
};
thread_local int depth = 0;
thread_local std::vector<Call> calls;

int start(const Call& call) {
  const Collective& given = call.collective;
  const size_t piece = pieceBytes(given, call.comm->group.size), pieces = (given.bytes + piece - 1) / piece;
  if (pieces == 0) return Success;
  launch(runCollective, (unsigned)std::min<size_t>(pieces, BLOCKS), call.stream, call.comm->group, given);
  return checked(cudaGetLastError(), "a collective");
}
template <int MOST>
int startMessages(const Call& first, const std::vector<Message>& list) {
  Messages<MOST> messages;
  messages.count = (int)list.size();
  std::copy(list.begin(), list.end(), messages.list);
  launch(moveMessages<MOST>, 2 * first.comm->group.size, first.stream, first.comm->group, messages);
  return checked(cudaGetLastError(), "sends and receives");
}

/** Issues the calls of a group: of each communicator first its messages, which run together, then collectives in their order. */
int issueAll() {
  const std::vector<Call> all = std::move(calls);
  calls.clear();
  int status = Success;
  std::vector<Comm*> seen;
  for (const Call& first : all) {
    if (std::find(seen.begin(), seen.end(), first.comm) != seen.end()) continue;
    seen.push_back(first.comm);
    std::vector<Message> messages;
    const Call* one = nullptr;
    for (const Call& call : all)
      if (call.comm == first.comm && call.isMessage) {
        messages.push_back(call.message);
        one = &call;
      }
    int own = Success;
    if (messages.size() > (size_t)MOST_MESSAGES) own = failed(InvalidUsage, "more than " + std::to_string(MOST_MESSAGES) + " sends and receives in a group");
    else if (one) own = messages.size() > (size_t)FEW_MESSAGES ? startMessages<MOST_MESSAGES>(*one, messages) : startMessages<FEW_MESSAGES>(*one, messages);
    for (const Call& call : all)
      if (own == Success && call.comm == first.comm && !call.isMessage) own = start(call);
    if (own != Success) first.comm->lastError = lastError;
    if (status == Success) status = own;
  }
  return status;
}
int submit(const Call& call) {
  if (!call.comm->isReady) return failed(InvalidUsage, "the communicator is not open yet");
  calls.push_back(call);
  return depth > 0 ? Success : issueAll();
}

/** A collective. `part` in elements. */
int collective(Comm* comm, cudaStream_t stream, const void* send, void* recv, size_t part, int dtype, Collective shape) {
  if (dtype < 0 || dtype > 11) return failed(InvalidArgument, "dtype " + std::to_string(dtype));
  if (shape.root < 0 || shape.root >= comm->group.size) return failed(InvalidArgument, "root " + std::to_string(shape.root));
  if (shape.op >= FIRST_OWN_OP) {
    const auto own = comm->ops.find(shape.op);
    if (own == comm->ops.end()) return failed(InvalidArgument, "operator " + std::to_string(shape.op));
    shape.op = SCALED_SUM;
    shape.scale = own->second.scale;
    shape.wholeScale = own->second.whole;
  }
  shape.send = (const char*)send;
  shape.recv = (char*)recv;
  shape.bytes = part * SIZES[dtype];
  shape.dtype = dtype;
  return submit({comm, stream, false, shape, {}});
}
Collective shapeOf(Gives gives, bool isCut, Takes takes, int op = SUM, int root = 0) {
  Collective shape{};
  shape.gives = gives;
  shape.isCut = isCut;
  shape.takes = takes;
  shape.op = op;
  shape.root = root;
  return shape;
}
int message(Comm* comm, cudaStream_t stream, void* data, size_t count, int dtype, int peer, bool isSent) {
  if (dtype < 0 || dtype > 11) return failed(InvalidArgument, "dtype " + std::to_string(dtype));
  if (peer < 0 || peer >= comm->group.size) return failed(InvalidArgument, "peer " + std::to_string(peer));
  return submit({comm, stream, true, {}, {(char*)data, count * SIZES[dtype], peer, isSent}});
}
int end(Comm* comm) {
  if (comm->aborted) *comm->aborted = 1;
  delete comm;
  return Success;
}
std::string hexOf(const UniqueId& id) {
  char text[33];
  for (int i = 0; i < 16; i++) snprintf(text + 2 * i, 3, "%02x", (unsigned char)id.internal[i]);
  return text;
}
}  // namespace

API int ncclGetVersion(int* version) {
  *version = 22803;
  return Success;
}
API const char* ncclGetErrorString(int result) {
  static const char* const TEXTS[] = {"no error", "unhandled cuda error", "unhandled system error", "internal error", "invalid argument", "invalid usage", "remote error", "in progress"};
  return result >= 0 && result < 8 ? TEXTS[result] : "unknown result code";
}
API const char* ncclGetLastError(Comm* comm) { return comm && !comm->lastError.empty() ? comm->lastError.c_str() : lastError.c_str(); }
API int ncclGetUniqueId(UniqueId* id) { return getrandom(id, sizeof *id, 0) == (ssize_t)sizeof *id ? Success : SystemError; }

API int ncclCommInitRankConfig(Comm** out, int size, UniqueId id, int rank, const Config* config) {
  if (size < 1 || size > MOST_RANKS || rank < 0 || rank >= size) return failed(InvalidArgument, "rank " + std::to_string(rank) + " of " + std::to_string(size));
  const std::string name = hexOf(id);
  Comm* comm = *out = new Comm{std::make_unique<Meeting>(name, size), rank, 0};
  comm->name = name;
  return open(comm, rank, config);
}
API int ncclCommSplit(Comm* parent, int color, int key, Comm** out, const Config* config) {
  if (!parent->isReady) return failed(InvalidUsage, "the parent is not open yet");
  const std::string name = parent->name + "-" + std::to_string(parent->numSplits++) + "s";
  Comm* comm = new Comm{std::make_unique<Meeting>(name, parent->group.size), parent->group.rank, color};
  // Groups of one split are told apart by their colours.
  comm->name = name + std::to_string(color);
  if (color == NO_COLOR) {
    *out = nullptr;
    const int status = comm->meeting->isOpen() ? come(comm, key) : SystemError;
    end(comm);
    return status;
  }
  *out = comm;
  return open(comm, key, config);
}
API int ncclCommGetAsyncError(Comm* comm, int* state) {
  *state = look(comm);
  return Success;
}
API int ncclCommFinalize(Comm*) { return Success; }
API int ncclCommDestroy(Comm* comm) { return end(comm); }
API int ncclCommAbort(Comm* comm) { return end(comm); }
API int ncclCommCount(Comm* comm, int* size) {
  *size = comm->group.size;
  return Success;
}
API int ncclCommUserRank(Comm* comm, int* rank) {
  *rank = comm->group.rank;
  return Success;
}

API int ncclRedOpCreatePreMulSum(int* op, const void* scalar, int dtype, int residence, Comm* comm) {
  if (residence != 1) return failed(InvalidArgument, "a scalar that is not the host's");
  Comm::Scale scale{};
  switch (dtype) {
    case 0: scale.whole = *(const int8_t*)scalar; break;
    case 1: scale.whole = *(const uint8_t*)scalar; break;
    case 2: scale.whole = *(const int32_t*)scalar; break;
    case 3: scale.whole = *(const uint32_t*)scalar; break;
    case 4: case 5: scale.whole = *(const int64_t*)scalar; break;
    case 6: scale.scale = (float)*(const __half*)scalar; break;
    case 7: scale.scale = *(const float*)scalar; break;
    case 8: scale.scale = *(const double*)scalar; break;
    case 9: scale.scale = (float)*(const __nv_bfloat16*)scalar; break;
    case 10: scale.scale = (float)*(const __nv_fp8_e4m3*)scalar; break;
    case 11: scale.scale = (float)*(const __nv_fp8_e5m2*)scalar; break;
    default: return failed(InvalidArgument, "dtype " + std::to_string(dtype));
  }
  *op = comm->nextOp++;
  comm->ops[*op] = scale;
  return Success;
}
API int ncclRedOpDestroy(int op, Comm* comm) { return comm->ops.erase(op) ? Success : InvalidArgument; }

API int ncclAllReduce(const void* send, void* recv, size_t count, int dtype, int op, Comm* comm, cudaStream_t stream) {
  return collective(comm, stream, send, recv, count, dtype, shapeOf(GIVES_ONE, false, TAKES_REDUCED, op));
}
API int ncclReduce(const void* send, void* recv, size_t count, int dtype, int op, int root, Comm* comm, cudaStream_t stream) {
  const Takes takes = comm->group.rank == root ? TAKES_REDUCED : TAKES_NOTHING;
  return collective(comm, stream, send, recv, count, dtype, shapeOf(GIVES_ONE, false, takes, op, root));
}
API int ncclBroadcast(const void* send, void* recv, size_t count, int dtype, int root, Comm* comm, cudaStream_t stream) {
  const Gives gives = comm->group.rank == root ? GIVES_ONE : GIVES_NOTHING;
  return collective(comm, stream, send, recv, count, dtype, shapeOf(gives, false, TAKES_ROOT, SUM, root));
}
API int ncclReduceScatter(const void* send, void* recv, size_t count, int dtype, int op, Comm* comm, cudaStream_t stream) {
  return collective(comm, stream, send, recv, count, dtype, shapeOf(GIVES_EACH, true, TAKES_REDUCED, op));
}
API int ncclAllGather(const void* send, void* recv, size_t count, int dtype, Comm* comm, cudaStream_t stream) {
  return collective(comm, stream, send, recv, count, dtype, shapeOf(GIVES_ONE, false, TAKES_ALL));
}
API int ncclAlltoAll(const void* send, void* recv, size_t count, int dtype, Comm* comm, cudaStream_t stream) {
  return collective(comm, stream, send, recv, count, dtype, shapeOf(GIVES_EACH, true, TAKES_ALL));
}
API int ncclGather(const void* send, void* recv, size_t count, int dtype, int root, Comm* comm, cudaStream_t stream) {
  const Takes takes = comm->group.rank == root ? TAKES_ALL : TAKES_NOTHING;
  return collective(comm, stream, send, recv, count, dtype, shapeOf(GIVES_ONE, false, takes, SUM, root));
}
API int ncclScatter(const void* send, void* recv, size_t count, int dtype, int root, Comm* comm, cudaStream_t stream) {
  const Gives gives = comm->group.rank == root ? GIVES_EACH : GIVES_NOTHING;
  return collective(comm, stream, send, recv, count, dtype, shapeOf(gives, true, TAKES_ROOT, SUM, root));
}
API int ncclSend(const void* data, size_t count, int dtype, int peer, Comm* comm, cudaStream_t stream) {
  return message(comm, stream, (void*)data, count, dtype, peer, true);
}
API int ncclRecv(void* data, size_t count, int dtype, int peer, Comm* comm, cudaStream_t stream) {
  return message(comm, stream, data, count, dtype, peer, false);
}
API int ncclGroupStart() {
  depth++;
  return Success;
}
API int ncclGroupEnd() {
  if (depth == 0) return failed(InvalidUsage, "no group is open");
  return --depth > 0 ? Success : issueAll();
}
