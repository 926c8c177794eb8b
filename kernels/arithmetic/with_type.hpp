// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <winnow/elements.hpp>
#include <winnow/error.hpp>

namespace winnow::kernels {

/// Returns call(T()) for the C++ type T of elements of `type`. Throws UsageError for 16-bit ones,
/// which have none.
template <class Call>
decltype(auto) with_type(ElementType type, const Call& call) {
  switch (type) {
    // NOLINTNEXTLINE(bugprone-branch-clone): the branches differ in T
    case ElementType::float32:
      return call(float());
    case ElementType::float64:
      return call(double());
    case ElementType::int8:
      return call(std::int8_t());
    case ElementType::uint8:
      return call(std::uint8_t());
    case ElementType::int32:
      return call(std::int32_t());
    case ElementType::uint32:
      return call(std::uint32_t());
    case ElementType::int64:
      return call(std::int64_t());
    case ElementType::uint64:
      return call(std::uint64_t());
    case ElementType::bf16:
    case ElementType::fp16:
      break;
  }
  fail_usage("elements of 16 bits have no arithmetic of their own: widen them to float32");
}

/// Calls body(T(), bits) with the C++ type of floats and the integers in their place.
template <class Body>
void visit_floats(const Elements& floats, const Body& body) {
  void* const memory = floats.bytes().data();
  if (floats.type() == ElementType::float32) {
    return body(float(), static_cast<std::uint32_t*>(memory));
  }
  WINNOW_EXPECTS(floats.type() == ElementType::float64,
                 "of floats only float32 and float64 have integers in their stead");
  body(double(), static_cast<std::uint64_t*>(memory));
}

}  // namespace winnow::kernels
