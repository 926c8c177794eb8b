// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>
#include <winnow/exec.hpp>

namespace train {

/// The memory of a device.
class Memory {
 public:
  virtual ~Memory() = default;

  /// The Exec for an AllReducer of buckets in this memory.
  virtual winnow::Exec exec() const = 0;
  /// Returns when everything called before is done.
  virtual void synchronize() = 0;

  /// Zeros, 64-byte aligned.
  virtual std::byte* allocate(std::size_t bytes) = 0;
  /// Nothing under way may use the memory.
  virtual void release(std::byte* memory) noexcept = 0;
  /// Copies from or to host memory; returns when done.
  virtual void copy(void* to, const void* from, std::size_t bytes) = 0;

  template <class T>
  std::vector<std::remove_const_t<T>> read(std::span<T> there) {
    std::vector<std::remove_const_t<T>> here(there.size());
    if (!there.empty()) copy(here.data(), there.data(), there.size_bytes());
    return here;
  }
  template <class T>
  void write(std::span<T> there, std::span<const std::type_identity_t<T>> here) {
    if (!there.empty()) copy(there.data(), here.data(), there.size_bytes());
  }
};

/// Owns objects in a device's memory, initially zero.
template <class T>
class Array {
  static_assert(std::is_trivially_copyable_v<T>);

 public:
  explicit Array(std::shared_ptr<Memory> memory, std::size_t count = 0)
      : memory_(std::move(memory)) {
    resize(count);
  }
  ~Array() { free(); }
  Array(Array&& other) noexcept
      : memory_(std::move(other.memory_)),
        data_(std::exchange(other.data_, nullptr)),
        count_(std::exchange(other.count_, 0)),
        capacity_(std::exchange(other.capacity_, 0)) {}
  Array& operator=(Array&&) = delete;
  Array(const Array&) = delete;
  Array& operator=(const Array&) = delete;

  T* data() const { return data_; }
  std::span<T> span() const { return {data_, count_}; }

  /// Growing loses the content.
  void resize(std::size_t count) {
    if (count > capacity_) {
      free();
      data_ = reinterpret_cast<T*>(memory_->allocate(count * sizeof(T)));
      capacity_ = count;
    }
    count_ = count;
  }
  void assign(std::span<const T> values) {
    resize(values.size());
    memory_->write(span(), values);
  }

 private:
  void free() noexcept {
    if (data_ != nullptr) memory_->release(reinterpret_cast<std::byte*>(data_));
    data_ = nullptr;
  }

  std::shared_ptr<Memory> memory_;
  T* data_ = nullptr;
  std::size_t count_ = 0, capacity_ = 0;
};

}  // namespace train
