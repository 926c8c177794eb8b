// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>
#include <vector>
#include <winnow/cxx20.hpp>

#pragma GCC visibility push(default)

namespace winnow {

/// How a tensor's elements are stored. The first three are gradient types: Winnow sums them, and
/// keeps their residuals, in float32. All others travel dense, unconverted.
enum class ElementType : std::uint8_t {
  float32,
  bf16,  ///< the upper half of a float32
  fp16,  ///< IEEE 754 binary16
  float64,
  int8,
  uint8,
  int32,
  uint32,
  int64,
  uint64,
};

/// Bytes of one element.
constexpr std::size_t bytes_of(ElementType type) {
  switch (type) {
    case ElementType::int8:
    case ElementType::uint8:
      return 1;
    case ElementType::bf16:
    case ElementType::fp16:
      return 2;
    case ElementType::float64:
    case ElementType::int64:
    case ElementType::uint64:
      return 8;
    default:
      return 4;
  }
}

/// C++ types that can be elements: float, double, and integers of 8, 32 and 64 bits.
template <class T>
concept Element = std::same_as<T, float> || std::same_as<T, double> ||
                  (std::integral<T> && !std::same_as<T, bool> && sizeof(T) != 2);

template <Element T>
constexpr ElementType element_type() {
  if (std::same_as<T, float>) return ElementType::float32;
  if (std::same_as<T, double>) return ElementType::float64;
  if (sizeof(T) == 1) return std::signed_integral<T> ? ElementType::int8 : ElementType::uint8;
  if (sizeof(T) == 4) return std::signed_integral<T> ? ElementType::int32 : ElementType::uint32;
  return std::signed_integral<T> ? ElementType::int64 : ElementType::uint64;
}

/// A view of a tensor's elements. A span or vector of an Element converts to it.
class Elements {
 public:
  Elements() = default;
  template <Element T, std::size_t N>
  // NOLINTNEXTLINE(google-explicit-constructor): a container of elements is such a view
  constexpr Elements(std::span<T, N> elements)
      : Elements(elements.data(), elements.size(), element_type<T>()) {}
  template <Element T>
  // NOLINTNEXTLINE(google-explicit-constructor)
  Elements(std::vector<T>& elements) : Elements(std::span<T>(elements)) {}
  /// `size` elements at `data`, as for MPI_Allreduce and ncclAllReduce.
  constexpr Elements(void* data, std::size_t size, ElementType type)
      : data_(data), size_(size), type_(type) {}

  constexpr void* data() const { return data_; }
  constexpr std::size_t size() const { return size_; }  ///< elements
  constexpr ElementType type() const { return type_; }
  std::span<std::byte> bytes() const {
    return {static_cast<std::byte*>(data_), size_ * bytes_of(type_)};
  }
  /// The elements, if type() is the type of T.
  template <Element T>
  constexpr std::span<T> as() const {
    return {static_cast<T*>(data_), size_};
  }
  /// The elements, if type() is float32.
  constexpr std::span<float> floats() const { return as<float>(); }
  /// The elements, if they have 16 bits.
  std::span<std::uint16_t> halves() const { return {static_cast<std::uint16_t*>(data_), size_}; }
  /// Elements [begin, begin + size).
  Elements subspan(std::size_t begin, std::size_t size) const {
    return {static_cast<std::byte*>(data_) + begin * bytes_of(type_), size, type_};
  }

 private:
  void* data_ = nullptr;
  std::size_t size_ = 0;
  ElementType type_ = ElementType::float32;
};

/// A read-only view of elements. Whatever converts to Elements converts to it, and so do const
/// spans and vectors.
class ConstElements {
 public:
  ConstElements() = default;
  // NOLINTNEXTLINE(google-explicit-constructor): what may be written may be read
  constexpr ConstElements(const Elements& elements) : view_(elements) {}
  template <class T, std::size_t N>
    requires Element<std::remove_const_t<T>>
  // NOLINTNEXTLINE(google-explicit-constructor)
  constexpr ConstElements(std::span<T, N> elements)
      : ConstElements(elements.data(), elements.size(), element_type<std::remove_const_t<T>>()) {}
  template <Element T>
  // NOLINTNEXTLINE(google-explicit-constructor)
  ConstElements(const std::vector<T>& elements) : ConstElements(std::span<const T>(elements)) {}
  constexpr ConstElements(const void* data, std::size_t size, ElementType type)
      : view_(const_cast<void*>(data), size, type) {}

  constexpr const void* data() const { return view_.data(); }
  constexpr std::size_t size() const { return view_.size(); }  ///< elements
  constexpr ElementType type() const { return view_.type(); }
  std::span<const std::byte> bytes() const { return view_.bytes(); }
  /// The elements, if type() is the type of T.
  template <Element T>
  std::span<const T> as() const {
    return view_.as<T>();
  }
  /// The elements, if they have 16 bits.
  std::span<const std::uint16_t> halves() const { return view_.halves(); }
  /// Elements [begin, begin + size).
  ConstElements subspan(std::size_t begin, std::size_t size) const {
    return view_.subspan(begin, size);
  }

 private:
  Elements view_;  // never handed out
};

}  // namespace winnow

#pragma GCC visibility pop
