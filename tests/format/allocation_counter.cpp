#include "allocation_counter.h"

#include <atomic>
#include <cstdlib>
#include <new>

namespace {

std::atomic<size_t> total{0};

void* counted(size_t n_bytes) {
  total += n_bytes;
  void* const memory = std::malloc(n_bytes == 0 ? 1 : n_bytes);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

}  // namespace

void* operator new(size_t n_bytes) { return counted(n_bytes); }
void* operator new[](size_t n_bytes) { return counted(n_bytes); }
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete[](void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, size_t) noexcept { std::free(memory); }
void operator delete[](void* memory, size_t) noexcept { std::free(memory); }

namespace ctxzip {

size_t allocated_bytes() { return total; }

}  // namespace ctxzip
