// host MEMORY-FILE PARAMETERS-FILE: launches kernels over the memory in a file. The parameters are words of 8 bytes:
// seed, launches, ranks, threads, words of a launch, mask; then of each rank: blocks, and of each of its launches the kernel and
// the words, of which those that hold addresses (as the mask's bits say) are offsets in the memory. A rank's launches follow
// each other as on a stream; ranks wait for each other only where the kernel does.
#include <cstdio>
#include <fcntl.h>
#include <random>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <vector>

static void run(unsigned low, unsigned high) {
  auto* f = (shim::Fiber*)((unsigned long long)high << 32 | low);
  f->kernel(f->launch);
  f->isDone = true;
  for (;;) shim::giveWay();
}

int main(int, char** argv) {
  const int file = open(argv[1], O_RDWR);
  struct stat about;
  fstat(file, &about);
  char* const memory = (char*)mmap(nullptr, about.st_size, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  const int given = open(argv[2], O_RDONLY);
  fstat(given, &about);
  std::vector<unsigned long long> words(about.st_size / 8);
  if (read(given, words.data(), about.st_size) != about.st_size) return 9;
  const auto seed = words[0], launches = words[1], ranks = words[2], threads = words[3], size = words[4], mask = words[5];
  std::mt19937 random(seed);
  struct Rank { std::vector<std::vector<unsigned long long>> launches; std::vector<unsigned> kernels; unsigned blocks; unsigned next; std::vector<shim::Fiber*> alive;
                shim::Block* late = nullptr; unsigned rounds = 0; };
  std::vector<Rank> all(ranks);
  size_t at = 6;
  constexpr size_t STACK = 64 << 10;
  std::vector<char*> stacks;
  auto begin = [&](Rank& rank) {
    const auto kernel = rank.kernels[rank.next];
    const auto& launch = rank.launches[rank.next++];
    for (unsigned b = 0; b < rank.blocks; b++) {
      auto* block = new shim::Block(b, threads);
      for (unsigned t = 0; t < threads; t++) {
        auto* f = new shim::Fiber();
        f->block = block;
        f->thread = t;
        f->launch = launch.data();
        f->kernel = KERNELS[kernel];
        f->gridSize = rank.blocks;
        getcontext(&f->context);
        char* stack;
        if (stacks.empty()) stack = (char*)mmap(nullptr, STACK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        else { stack = stacks.back(); stacks.pop_back(); }
        f->context.uc_stack.ss_sp = stack;
        f->context.uc_stack.ss_size = STACK;
        f->context.uc_link = nullptr;
        const auto self = (unsigned long long)f;
        makecontext(&f->context, (void (*)())run, 2, (unsigned)self, (unsigned)(self >> 32));
        rank.alive.push_back(f);
      }
    }
  };
  for (auto& rank : all) {
    rank.blocks = words[at++];
    rank.launches.resize(launches);
    for (auto& launch : rank.launches) {
      rank.kernels.push_back(words[at++]);
      for (size_t w = 0; w < size; w++, at++) {
        const bool isAddress = w >= 64 || (mask >> w & 1);
        launch.push_back(isAddress ? (unsigned long long)memory + words[at] : words[at]);
      }
    }
    rank.next = 0;
  }
  unsigned idle = 0;
  for (;;) {
    const auto before = shim::moves;
    bool any = false, ended = false;
    for (auto& rank : all) {
      if (rank.alive.empty() && rank.next < launches) begin(rank);
      if (rank.alive.empty()) continue;
      any = true;
      if (random() % 4 == 0) continue;
      // Now and then a block falls behind the others.
      if (rank.rounds > 0) rank.rounds--;
      else if (random() % 16 == 0) { rank.rounds = random() % 24; rank.late = rank.alive[random() % rank.alive.size()]->block; }
      // Fibers from a random one on, block after block; sometimes only a part of them.
      const size_t n = rank.alive.size(), from = random() % n, many = random() % 3 == 0 ? 1 + random() % n : n;
      for (size_t k = 0; k < many; k++) {
        auto* f = rank.alive[(from + k) % n];
        if (!f->isDone && (rank.rounds == 0 || f->block != rank.late)) shim::enter(f);
      }
      std::vector<shim::Fiber*> alive;
      for (auto* f : rank.alive) {
        if (!f->isDone) { alive.push_back(f); continue; }
        ended = true;
        stacks.push_back((char*)f->context.uc_stack.ss_sp);
        delete f;
      }
      rank.alive.swap(alive);
    }
    if (!any) return 0;
    idle = ended || shim::moves != before ? 0 : idle + 1;
    if (idle > 200) { puts("stuck"); return 3; }
  }
}
