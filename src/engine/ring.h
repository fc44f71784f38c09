// SPDX-License-Identifier: Apache-2.0
// ring.h: a first-in-first-out queue that keeps its memory, so that a warm engine allocates
// nothing.
#pragma once

#include <cstddef>
#include <utility>
#include <vector>

namespace ciuic::engine {

template <typename T>
class Ring {
 public:
  bool empty() const { return size_ == 0; }
  size_t size() const { return size_; }
  T& front() { return items_[head_]; }
  const T& front() const { return items_[head_]; }
  T& operator[](size_t index) { return items_[(head_ + index) & (items_.size() - 1)]; }
  const T& operator[](size_t index) const { return items_[(head_ + index) & (items_.size() - 1)]; }

  void push(T item) {
    if (size_ == items_.size()) grow();
    items_[(head_ + size_) & (items_.size() - 1)] = std::move(item);
    ++size_;
  }

  void pop() {
    head_ = (head_ + 1) & (items_.size() - 1);
    --size_;
  }

  void clear() { head_ = size_ = 0; }

 private:
  void grow() {
    std::vector<T> larger(items_.empty() ? 8 : items_.size() * 2);
    for (size_t i = 0; i < size_; ++i) larger[i] = std::move((*this)[i]);
    items_ = std::move(larger);
    head_ = 0;
  }

  std::vector<T> items_;  // a power of two of them
  size_t head_ = 0;
  size_t size_ = 0;
};

}  // namespace ciuic::engine
