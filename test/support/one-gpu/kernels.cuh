/**
 * The two kernels of the NCCL for one GPU: one for collectives, one for the sends and receives of a group. Ranks meet in
 * slabs of device memory, of which each has one for a communicator. A rank writes to its own alone and reads all of them, so
 * what a slab's counters say is what its owner has done; they only grow, and stand on the device, so that graphs can replay
 * the kernels. Block b of a rank meets block b of the others.
 */
#pragma once
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>
#include <cstdint>
#include "meeting.hpp"

constexpr int BLOCKS = 8, THREADS = 256, SLOTS = 2;
constexpr size_t SLOT_BYTES = 64 << 10;
/** Messages of one launch: what a kernel takes as parameters. */
constexpr int FEW_MESSAGES = 16, MOST_MESSAGES = 1024;

struct alignas(128) Counter {
  unsigned value;
};
struct Slab {
  /** Steps of collectives that are written, by block. */
  Counter steps[BLOCKS];
  /** Slots that were sent to each peer, and slots of each peer's that were received. */
  Counter sent[MOST_RANKS], received[MOST_RANKS];
  alignas(128) char slots[BLOCKS][SLOTS][SLOT_BYTES];
  char pairs[MOST_RANKS][SLOTS][SLOT_BYTES];
};
struct Group {
  Slab* slabs[MOST_RANKS];
  const unsigned* aborted;
  int rank, size;
};
/** What goes into a rank's slots in each step, and what it takes of the others': its own slice, or all that there is. */
enum Gives { GIVES_NOTHING, GIVES_ONE, GIVES_EACH };
enum Takes { TAKES_NOTHING, TAKES_REDUCED, TAKES_ALL, TAKES_ROOT };
struct Collective {
  const char* send;
  char* recv;
  /** Of a part. */
  size_t bytes;
  Gives gives;
  /** Whether parts are for one rank each. */
  bool isCut;
  Takes takes;
  int dtype, op, root;
  /** Of an operator that scales before it sums. */
  double scale;
  int64_t wholeScale;
};
struct Message {
  char* data;
  size_t bytes;
  int peer;
  bool isSent;
};
template <int MOST>
struct Messages {
  int count;
  Message list[MOST];
};

enum Op { SUM, PROD, MAX, MIN, AVG, SCALED_SUM };

#ifdef __CUDACC__
#include "blocks.cuh"
#else
#include "blocks-on-host.hpp"
#endif

inline __device__ void publish(Counter& counter, unsigned value) {
  __threadfence_system();
  store(counter.value, value);
}

inline __device__ bool isAborted(const Group& group) { return *(const volatile unsigned*)group.aborted != 0; }

/** Waits until a counter has come to a value. False: the communicator was aborted. */
inline __device__ bool reaches(const Counter& counter, unsigned value, const Group& group) {
  for (unsigned turn = 1; (int)(load(counter.value) - value) < 0; turn++) {
    if (turn % 64 != 0) continue;
    if (isAborted(group)) return false;
    __nanosleep(200);
  }
  return true;
}

template <class Unit>
__device__ inline void copyUnits(char* to, const char* from, size_t count) {
  for (size_t i = threadIdx.x; i < count; i += blockDim.x) ((Unit*)to)[i] = __ldcv((const Unit*)from + i);
}
__device__ inline void copy(char* to, const char* from, size_t bytes) {
  const size_t way = (size_t)to | (size_t)from;
  const size_t wide = way % 16 == 0 ? bytes / 16 * 16 : way % 4 == 0 ? bytes / 4 * 4 : 0;
  if (way % 16 == 0) copyUnits<uint4>(to, from, wide / 16);
  else copyUnits<unsigned>(to, from, wide / 4);
  copyUnits<unsigned char>(to + wide, from + wide, bytes - wide);
}

/** In what a dtype is reduced: narrow floats in single precision, whole numbers as they are. */
template <class T> struct Wide { using type = T; };
template <> struct Wide<__half> { using type = float; };
template <> struct Wide<__nv_bfloat16> { using type = float; };
template <> struct Wide<__nv_fp8_e4m3> { using type = float; };
template <> struct Wide<__nv_fp8_e5m2> { using type = float; };
template <class W> struct Sums { using type = W; };
template <> struct Sums<int8_t> { using type = uint8_t; };
template <> struct Sums<int32_t> { using type = uint32_t; };
template <> struct Sums<int64_t> { using type = uint64_t; };

template <class W>
__device__ inline W combine(int op, W a, W b) {
  using Wrapping = typename Sums<W>::type;
  switch (op) {
    case PROD: return (W)((Wrapping)a * (Wrapping)b);
    case MAX: return a != a || a > b ? a : b;
    case MIN: return a != a || a < b ? a : b;
    default: return (W)((Wrapping)a + (Wrapping)b);
  }
}

template <class T>
__device__ void reduce(const Group& group, const Collective& call, char* to, const char* const* slices, size_t bytes) {
  using W = typename Wide<T>::type;
  constexpr bool isWhole = (W)0.5 == (W)0;
  for (size_t i = threadIdx.x; i < bytes / sizeof(T); i += blockDim.x) {
    W sum{};
    for (int rank = 0; rank < group.size; rank++) {
      W value = (W)((const T*)slices[rank])[i];
      if (call.op == SCALED_SUM) value = isWhole ? (W)((typename Sums<W>::type)value * (typename Sums<W>::type)call.wholeScale) : (W)(value * (W)call.scale);
      sum = rank == 0 ? value : combine(call.op, sum, value);
    }
    if (call.op == AVG) sum = (W)(sum / (W)group.size);
    ((T*)to)[i] = (T)sum;
  }
}

__device__ inline void reduceAny(const Group& group, const Collective& call, char* to, const char* const* slices, size_t bytes) {
  switch (call.dtype) {
    case 0: return reduce<int8_t>(group, call, to, slices, bytes);
    case 1: return reduce<uint8_t>(group, call, to, slices, bytes);
    case 2: return reduce<int32_t>(group, call, to, slices, bytes);
    case 3: return reduce<uint32_t>(group, call, to, slices, bytes);
    case 4: return reduce<int64_t>(group, call, to, slices, bytes);
    case 5: return reduce<uint64_t>(group, call, to, slices, bytes);
    case 6: return reduce<__half>(group, call, to, slices, bytes);
    case 7: return reduce<float>(group, call, to, slices, bytes);
    case 8: return reduce<double>(group, call, to, slices, bytes);
    case 9: return reduce<__nv_bfloat16>(group, call, to, slices, bytes);
    case 10: return reduce<__nv_fp8_e4m3>(group, call, to, slices, bytes);
    case 11: return reduce<__nv_fp8_e5m2>(group, call, to, slices, bytes);
  }
}

/** Bytes of a part that one step of one block moves. */
inline __host__ __device__ size_t pieceBytes(const Collective& call, int size) {
  return SLOT_BYTES / (call.isCut ? size : 1) / 128 * 128;
}

__global__ void __launch_bounds__(THREADS) runCollective(const __grid_constant__ Group group, const __grid_constant__ Collective call) {
  const int block = blockIdx.x, size = group.size, rank = group.rank;
  if (__syncthreads_or(isAborted(group))) return;
  Slab& own = *group.slabs[rank];
  unsigned step = own.steps[block].value;
  const size_t piece = pieceBytes(call, size), mine = call.isCut ? rank * piece : 0;
  __shared__ const char* slices[MOST_RANKS];
  for (size_t at = block * piece; at < call.bytes; at += gridDim.x * piece) {
    const size_t bytes = call.bytes - at < piece ? call.bytes - at : piece;
    // The slot of the last step but one: everybody has read it who has written one since.
    const int slot = ++step % SLOTS;
    for (int part = 0; part < (call.gives == GIVES_NOTHING ? 0 : call.gives == GIVES_EACH ? size : 1); part++)
      copy(own.slots[block][slot] + part * piece, call.send + part * call.bytes + at, bytes);
    __syncthreads();
    if (threadIdx.x == 0) publish(own.steps[block], step);
    bool goesOn = true;
    for (int from = threadIdx.x; from < size; from += blockDim.x) {
      goesOn = goesOn && reaches(group.slabs[from]->steps[block], step, group);
      slices[from] = group.slabs[from]->slots[block][slot] + mine;
    }
    if (!__syncthreads_and(goesOn)) return;
    if (call.takes == TAKES_REDUCED) reduceAny(group, call, call.recv + at, slices, bytes);
    else if (call.takes == TAKES_ROOT) copy(call.recv + at, slices[call.root], bytes);
    else if (call.takes == TAKES_ALL)
      for (int from = 0; from < size; from++) copy(call.recv + from * call.bytes + at, slices[from], bytes);
    __syncthreads();
  }
}

/** Block 2p sends to rank p, block 2p + 1 receives of it, message after message. */
template <int MOST>
__global__ void __launch_bounds__(THREADS) moveMessages(const __grid_constant__ Group group, const __grid_constant__ Messages<MOST> messages) {
  const int peer = blockIdx.x / 2;
  const bool isSent = blockIdx.x % 2 == 0;
  if (__syncthreads_or(isAborted(group))) return;
  Slab &own = *group.slabs[group.rank], &other = *group.slabs[peer];
  Counter& done = isSent ? own.sent[peer] : own.received[peer];
  const Counter& theirs = isSent ? other.received[group.rank] : other.sent[group.rank];
  unsigned count = done.value;
  for (int i = 0; i < messages.count; i++) {
    const Message& message = messages.list[i];
    if (message.peer != peer || message.isSent != isSent) continue;
    for (size_t at = 0; at < message.bytes; at += SLOT_BYTES) {
      const size_t bytes = message.bytes - at < SLOT_BYTES ? message.bytes - at : SLOT_BYTES;
      const unsigned needs = isSent ? count + 1 - SLOTS : count + 1;
      if (!__syncthreads_and(threadIdx.x > 0 || reaches(theirs, needs, group))) return;
      if (isSent) copy(own.pairs[peer][count % SLOTS], message.data + at, bytes);
      else copy(message.data + at, other.pairs[group.rank][count % SLOTS], bytes);
      count++;
      __syncthreads();
      if (threadIdx.x == 0) publish(done, count);
    }
  }
}
