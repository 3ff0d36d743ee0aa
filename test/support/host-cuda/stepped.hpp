// A generated kernel as a library of the stand-in GPU: launches are begun, and go on a step at a time, in which every fiber
// runs until it waits. All of it under the stand-in's lock. Stands behind shim.hpp and the kernel in namespace `kernel`.
#include <sys/mman.h>

static void runFiber(unsigned low, unsigned high) {
  auto* f = (shim::Fiber*)((unsigned long long)high << 32 | low);
  f->kernel(f->launch);
  f->isDone = true;
  for (;;) shim::giveWay();
}

struct Stepped {
  kernel::Launch launch;
  unsigned numBlocks, numAlive;
  shim::Block** blocks;
  shim::Fiber** alive;
};
extern "C" const unsigned stepped_bytes = sizeof(kernel::Launch);
constexpr unsigned STACK_BYTES = 64 << 10;
// Stacks that wait for their next fiber, each of which holds the address of the one before.
static char* freeStack = nullptr;
static char* takeStack() {
  char* stack = freeStack;
  if (stack) freeStack = *(char**)stack;
  else stack = (char*)mmap(nullptr, STACK_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  return stack;
}
static void leaveStack(char* stack) {
  *(char**)stack = freeStack;
  freeStack = stack;
}

extern "C" void* stepped_begin(const void* launch, unsigned blocks, unsigned threads) {
  auto* all = new Stepped{{}, blocks, 0, new shim::Block*[blocks], new shim::Fiber*[blocks * threads]};
  memcpy(&all->launch, launch, sizeof all->launch);
  for (unsigned b = 0; b < blocks; b++) {
    auto* block = all->blocks[b] = new shim::Block(b, threads);
    for (unsigned t = 0; t < threads; t++) {
      auto* f = new shim::Fiber();
      f->block = block;
      f->thread = t;
      f->launch = &all->launch;
      f->kernel = [](const void* l) { kernel::chorale_plan(*(const kernel::Launch*)l); };
      f->gridSize = blocks;
      getcontext(&f->context);
      f->context.uc_stack.ss_sp = takeStack();
      f->context.uc_stack.ss_size = STACK_BYTES;
      f->context.uc_link = nullptr;
      const auto self = (unsigned long long)f;
      makecontext(&f->context, (void (*)())runFiber, 2, (unsigned)self, (unsigned)(self >> 32));
      all->alive[all->numAlive++] = f;
    }
  }
  return all;
}

// Whether the launch has ended: then it is gone.
extern "C" bool stepped_step(void* launch) {
  auto* all = (Stepped*)launch;
  unsigned numAlive = 0;
  for (unsigned i = 0; i < all->numAlive; i++) {
    auto* f = all->alive[i];
    shim::enter(f);
    if (!f->isDone) { all->alive[numAlive++] = f; continue; }
    leaveStack((char*)f->context.uc_stack.ss_sp);
    delete f;
  }
  all->numAlive = numAlive;
  if (numAlive > 0) return false;
  for (unsigned b = 0; b < all->numBlocks; b++) delete all->blocks[b];
  delete[] all->blocks;
  delete[] all->alive;
  delete all;
  return true;
}
