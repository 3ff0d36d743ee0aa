// A generated kernel as a library of the stand-in GPU: launches are begun, and go on a step at a time, in which every fiber
// runs until it waits. All of it under the stand-in's lock. Stands behind shim.hpp and the kernel in namespace `kernel`.
static void runFiber(unsigned low, unsigned high) {
  auto* f = (shim::Fiber*)((unsigned long long)high << 32 | low);
  f->kernel(f->launch);
  f->isDone = true;
  for (;;) shim::giveWay();
}

struct Stepped {
  kernel::Launch launch;
  std::vector<shim::Block*> blocks;
  std::vector<shim::Fiber*> alive;
};
extern "C" const unsigned stepped_bytes = sizeof(kernel::Launch);
constexpr size_t STACK_BYTES = 64 << 10;
// Never destroyed: at a process's end its device may still be at work.
static auto& freeStacks = *new std::vector<char*>();

extern "C" void* stepped_begin(const void* launch, unsigned blocks, unsigned threads) {
  auto* all = new Stepped();
  memcpy(&all->launch, launch, sizeof all->launch);
  for (unsigned b = 0; b < blocks; b++) {
    auto* block = new shim::Block();
    block->index = b;
    block->numThreads = threads;
    block->warps.resize(threads / 32);
    all->blocks.push_back(block);
    for (unsigned t = 0; t < threads; t++) {
      auto* f = new shim::Fiber();
      f->block = block;
      f->thread = t;
      f->launch = &all->launch;
      f->kernel = [](const void* l) { kernel::chorale_plan(*(const kernel::Launch*)l); };
      f->gridSize = blocks;
      getcontext(&f->context);
      if (freeStacks.empty()) freeStacks.push_back((char*)mmap(nullptr, STACK_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
      f->context.uc_stack.ss_sp = freeStacks.back();
      freeStacks.pop_back();
      f->context.uc_stack.ss_size = STACK_BYTES;
      f->context.uc_link = nullptr;
      const auto self = (unsigned long long)f;
      makecontext(&f->context, (void (*)())runFiber, 2, (unsigned)self, (unsigned)(self >> 32));
      all->alive.push_back(f);
    }
  }
  return all;
}

// Whether the launch has ended: then it is gone.
extern "C" bool stepped_step(void* launch) {
  auto* all = (Stepped*)launch;
  std::vector<shim::Fiber*> alive;
  for (auto* f : all->alive) {
    shim::enter(f);
    if (!f->isDone) { alive.push_back(f); continue; }
    freeStacks.push_back((char*)f->context.uc_stack.ss_sp);
    delete f;
  }
  all->alive.swap(alive);
  if (!all->alive.empty()) return false;
  for (auto* block : all->blocks) delete block;
  delete all;
  return true;
}
