// Random numbers that are the same with every standard library.
#pragma once

#include <cstddef>
#include <cstdint>
#include <random>
#include <string_view>
#include <utility>
#include <vector>

namespace ctxzip::eval {

class Draw {
 public:
  explicit Draw(uint64_t seed) : random_(seed) {}
  // A stream of its own for each purpose: the same seed and purpose draw the same.
  Draw(uint64_t seed, std::string_view purpose);

  // 0 <= result < n. The bias of at most n / 2^64 does not matter here.
  size_t below(size_t n) { return static_cast<size_t>(random_() % n); }
  int64_t between(int64_t first, int64_t last) {
    return first + static_cast<int64_t>(below(static_cast<size_t>(last - first + 1)));
  }
  template <typename List>
  const auto& one_of(const List& list) {
    return list[below(std::size(list))];
  }
  template <typename T>
  void shuffle(std::vector<T>& list) {
    for (size_t left = list.size(); left > 1; --left) std::swap(list[left - 1], list[below(left)]);
  }

 private:
  std::mt19937_64 random_;
};

}  // namespace ctxzip::eval
