// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#pragma GCC visibility push(default)

namespace winnow {

/// How a tensor's elements are stored. Whatever it is, they are summed, and residuals kept, in
/// float32.
enum class ElementType : std::uint8_t {
  float32,
  bf16,  ///< the upper half of a float32
  fp16,  ///< IEEE 754 binary16
};

/// A view of a tensor's elements. A span or vector of float converts to it.
class Elements {
 public:
  Elements() = default;
  // NOLINTNEXTLINE(google-explicit-constructor): what holds floats is such a view
  Elements(std::span<float> floats) : data_(floats.data()), size_(floats.size()) {}
  // NOLINTNEXTLINE(google-explicit-constructor)
  Elements(std::vector<float>& floats) : Elements(std::span<float>(floats)) {}
  /// `size` elements of 16 bits each.
  Elements(std::uint16_t* data, std::size_t size, ElementType type)
      : data_(data), size_(size), type_(type) {}

  std::size_t size() const { return size_; }  ///< elements
  ElementType type() const { return type_; }
  /// The elements where type is float32.
  std::span<float> floats() const { return {static_cast<float*>(data_), size_}; }
  /// The elements where it is not.
  std::span<std::uint16_t> halves() const { return {static_cast<std::uint16_t*>(data_), size_}; }

 private:
  void* data_ = nullptr;
  std::size_t size_ = 0;
  ElementType type_ = ElementType::float32;
};

}  // namespace winnow

#pragma GCC visibility pop
