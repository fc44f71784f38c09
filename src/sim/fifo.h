// SPDX-License-Identifier: Apache-2.0
// fifo.h: a queue that costs nothing while it is empty: a large group has a million of them.
#pragma once

#include <cstddef>
#include <utility>
#include <vector>

namespace ciuic::sim {

template <typename T>
class Fifo {
 public:
  bool empty() const { return first_ == items_.size(); }
  size_t size() const { return items_.size() - first_; }

  T& front() { return items_[first_]; }
  const T& front() const { return items_[first_]; }
  T& back() { return items_.back(); }
  T& operator[](size_t index) { return items_[first_ + index]; }

  void push_back(T item) { items_.push_back(std::move(item)); }
  void pop_front() {
    items_[first_++] = T();
    if (empty()) {
      clear();
    } else if (first_ > 32 && first_ > items_.size() / 2) {
      items_.erase(items_.begin(), items_.begin() + static_cast<std::ptrdiff_t>(first_));
      first_ = 0;
    }
  }
  void pop_back() { items_.pop_back(); }
  void clear() {
    items_.clear();
    first_ = 0;
  }

  auto begin() const { return items_.begin() + static_cast<std::ptrdiff_t>(first_); }
  auto end() const { return items_.end(); }

 private:
  std::vector<T> items_;
  size_t first_ = 0;
};

}  // namespace ciuic::sim
