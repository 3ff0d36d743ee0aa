/**
 * The kernels of the NCCL for one GPU, run on the host: every rank's blocks are threads. What comes out is compared with what
 * the operation means, element by element, in small whole numbers. Prints how much was compared, or what
 * is wrong.
 */
#include <cstdio>
#include <cstring>
#include <functional>
#include <memory>
#include <random>
#include <thread>
#include <vector>
#include "kernels.cuh"

static std::mt19937 draw(1);
static long compared = 0, wrong = 0;

struct Ranks {
  int size;
  unsigned aborted = 0;
  std::vector<std::unique_ptr<Slab>> slabs;
  explicit Ranks(int n) : size(n) {
    for (int rank = 0; rank < n; rank++) slabs.push_back(std::make_unique<Slab>());
  }
  Group of(int rank) {
    Group group{};
    for (int other = 0; other < size; other++) group.slabs[other] = slabs[other].get();
    group.aborted = &aborted;
    group.rank = rank;
    group.size = size;
    return group;
  }
  void run(unsigned blocks, const std::function<void(int)>& body) {
    std::vector<std::thread> all;
    for (int rank = 0; rank < size; rank++)
      for (unsigned block = 0; block < blocks; block++)
        all.emplace_back([=, &body] {
          blockIdx.x = block;
          gridDim.x = blocks;
          body(rank);
        });
    for (auto& one : all) one.join();
  }
};
void expect(double got, double want, const char* what, int op, size_t at) {
  compared++;
  if (got == want) return;
  if (wrong++ < 5) printf("%s, operator %d: element %zu is %g, not %g\n", what, op, at, got, want);
}

template <class T>
void check(Ranks& ranks, int dtype, size_t count, const char* what, Gives gives, bool isCut, Takes takes, int op, int root) {
  const int n = ranks.size;
  const bool isRooted = gives == GIVES_NOTHING, gathersAtRoot = takes == TAKES_NOTHING;
  std::vector<std::vector<T>> in(n, std::vector<T>(n * count)), out(n, std::vector<T>(n * count));
  for (auto& all : in)
    for (auto& one : all) one = (T)(float)(draw() % 3 + 1);
  std::vector<Collective> calls(n);
  for (int rank = 0; rank < n; rank++) {
    Collective& call = calls[rank];
    call = {};
    call.send = (const char*)in[rank].data();
    call.recv = (char*)out[rank].data();
    call.bytes = count * sizeof(T);
    call.gives = isRooted ? (rank == root ? (isCut ? GIVES_EACH : GIVES_ONE) : GIVES_NOTHING) : gives;
    call.isCut = isCut;
    call.takes = gathersAtRoot ? (rank == root ? (op < 0 ? TAKES_ALL : TAKES_REDUCED) : TAKES_NOTHING) : takes;
    call.dtype = dtype;
    call.op = op < 0 ? SUM : op;
    call.root = root;
    call.scale = 2;
    call.wholeScale = 2;
  }
  const size_t pieces = (calls[0].bytes + pieceBytes(calls[0], n) - 1) / pieceBytes(calls[0], n);
  ranks.run(pieces < 2 ? 1 : 2, [&](int rank) { runCollective(ranks.of(rank), calls[rank]); });
  const auto given = [&](int from, size_t at) { return (double)(float)in[from][at]; };
  for (int rank = 0; rank < n; rank++) {
    const size_t own = isCut ? rank * count : 0;
    const bool takesAll = calls[rank].takes == TAKES_ALL;
    if (calls[rank].takes == TAKES_NOTHING) continue;
    for (size_t i = 0; i < (takesAll ? n : 1) * count; i++) {
      double want = 0;
      if (takesAll) want = given((int)(i / count), own + i % count);
      else if (calls[rank].takes == TAKES_ROOT) want = given(root, own + i);
      else
        for (int from = 0; from < n; from++) {
          const double one = given(from, own + i) * (op == SCALED_SUM ? 2 : 1);
          want = from == 0 ? one : op == PROD ? want * one : op == MAX ? std::max(want, one) : op == MIN ? std::min(want, one) : want + one;
        }
      if (op == AVG && calls[rank].takes == TAKES_REDUCED) want /= n;
      // Rounded, or cut off, to what the dtype holds.
      expect((double)(float)out[rank][i], (double)(float)(T)(float)want, what, op, i);
    }
  }
}

template <class T>
void checkAll(int dtype) {
  for (int n : {1, 2, 3}) {
    Ranks ranks(n);
    // The last takes a block several steps; of it one operator a dtype is enough.
    const size_t many = 150000 / sizeof(T);
    for (size_t count : {(size_t)1, (size_t)7, many}) {
      for (int op : {SUM, PROD, MAX, MIN, AVG, SCALED_SUM}) {
        if (count == many && op != dtype % 6) continue;
        check<T>(ranks, dtype, count, "all_reduce", GIVES_ONE, false, TAKES_REDUCED, op, 0);
        check<T>(ranks, dtype, count, "reduce", GIVES_ONE, false, TAKES_NOTHING, op, n - 1);
        check<T>(ranks, dtype, count, "reduce_scatter", GIVES_EACH, true, TAKES_REDUCED, op, 0);
      }
      check<T>(ranks, dtype, count, "all_gather", GIVES_ONE, false, TAKES_ALL, -1, 0);
      check<T>(ranks, dtype, count, "all_to_all", GIVES_EACH, true, TAKES_ALL, -1, 0);
      check<T>(ranks, dtype, count, "broadcast", GIVES_NOTHING, false, TAKES_ROOT, -1, n - 1);
      check<T>(ranks, dtype, count, "scatter", GIVES_NOTHING, true, TAKES_ROOT, -1, n - 1);
      check<T>(ranks, dtype, count, "gather", GIVES_ONE, false, TAKES_NOTHING, -1, n - 1);
    }
  }
}

/** Each rank sends to each, itself included, several messages of different lengths. */
void checkMessages() {
  for (int n : {1, 2, 4}) {
    Ranks ranks(n);
    for (size_t most : {16, 300000}) {
      constexpr int EACH = 3;
      std::vector<std::vector<std::vector<char>>> in(n), out(n);
      std::vector<Messages<MOST_MESSAGES>> lists(n);
      const auto length = [&](int from, int to, int k) { return (size_t)(most / (1 + (from + 2 * to + k) % 5)); };
      for (int rank = 0; rank < n; rank++)
        for (int peer = 0; peer < n; peer++)
          for (int k = 0; k < EACH; k++) {
            std::vector<char> sent(length(rank, peer, k));
            for (auto& one : sent) one = (char)draw();
            in[rank].push_back(sent);
            out[rank].emplace_back(length(peer, rank, k));
          }
      for (int rank = 0; rank < n; rank++) {
        lists[rank].count = 0;
        for (int i = 0; i < n * EACH; i++) {
          lists[rank].list[lists[rank].count++] = {in[rank][i].data(), in[rank][i].size(), i / EACH, true};
          lists[rank].list[lists[rank].count++] = {out[rank][i].data(), out[rank][i].size(), i / EACH, false};
        }
      }
      ranks.run(2 * n, [&](int rank) { moveMessages<MOST_MESSAGES>(ranks.of(rank), lists[rank]); });
      for (int rank = 0; rank < n; rank++)
        for (int i = 0; i < n * EACH; i++) {
          const auto& want = in[i / EACH][rank * EACH + i % EACH];
          expect(memcmp(want.data(), out[rank][i].data(), want.size()), 0, "messages", 0, i);
        }
    }
  }
}

/** A rank whose peers do not come is told to end. */
void checkAbort() {
  Ranks ranks(2);
  char data[64] = {};
  Collective call{};
  call.send = call.recv = data;
  call.bytes = sizeof data;
  call.gives = GIVES_ONE;
  call.takes = TAKES_REDUCED;
  std::thread one([&] { runCollective(ranks.of(0), call); });
  while (load(ranks.slabs[0]->steps[0].value) == 0) sched_yield();
  __atomic_store_n(&ranks.aborted, 1, __ATOMIC_RELEASE);
  one.join();
  expect(load(ranks.slabs[0]->steps[0].value), 1, "an aborted call", 0, 0);
}

int main() {
  checkAll<int8_t>(0);
  checkAll<uint8_t>(1);
  checkAll<int32_t>(2);
  checkAll<uint32_t>(3);
  checkAll<int64_t>(4);
  checkAll<uint64_t>(5);
  checkAll<__half>(6);
  checkAll<float>(7);
  checkAll<double>(8);
  checkAll<__nv_bfloat16>(9);
  checkAll<__nv_fp8_e4m3>(10);
  checkAll<__nv_fp8_e5m2>(11);
  checkMessages();
  checkAbort();
  printf("%ld compared, %ld wrong\n", compared, wrong);
  return wrong > 0;
}
