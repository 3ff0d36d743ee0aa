/**
 * How the ranks of a communicator find each other: a file of seats in shared memory, one for each rank that may come, named
 * by what they all know. Each takes its own seat, and looks until all are taken. Ranks are threads or processes.
 */
#pragma once
#include <atomic>
#include <cstdint>
#include <fcntl.h>
#include <string>
#include <sys/mman.h>
#include <unistd.h>

constexpr int MOST_RANKS = 8;

/** What a rank tells the others: where its slab is, and with what colour and key it has come. */
struct Seat {
  std::atomic<uint32_t> isTaken;
  int32_t color, key, pid;
  uint64_t address, offset;
  char handle[64];
};

struct Seats {
  Seat of[MOST_RANKS];
  std::atomic<uint32_t> numGone;
};

class Meeting {
 public:
  Meeting(const std::string& name, int size) : path_("/dev/shm/one-gpu-nccl-" + std::to_string(getuid()) + "-" + name), name_(name), size_(size) {
    const int file = open(path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (file < 0) return;
    if (ftruncate(file, sizeof(Seats)) == 0) {
      void* const at = mmap(nullptr, sizeof(Seats), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
      if (at != MAP_FAILED) seats_ = (Seats*)at;
    }
    close(file);
  }
  ~Meeting() {
    if (!seats_) return;
    // Nobody comes any more once all are gone; where one has died before, the file stays until its name comes again.
    if (seats_->numGone.fetch_add(1) + 1 == (uint32_t)size_) unlink(path_.c_str());
    munmap(seats_, sizeof(Seats));
  }
  Meeting(const Meeting&) = delete;

  bool isOpen() const { return seats_ != nullptr; }
  int size() const { return size_; }
  const std::string& name() const { return name_; }
  Seat& seat(int rank) { return seats_->of[rank]; }
  bool isComplete() const {
    for (int rank = 0; rank < size_; rank++)
      if (seats_->of[rank].isTaken.load(std::memory_order_acquire) == 0) return false;
    return true;
  }

 private:
  std::string path_, name_;
  int size_;
  Seats* seats_ = nullptr;
};
