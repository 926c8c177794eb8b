// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <winnow/winnow.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <winnow/error.hpp>

#include "comm/transport/memory.hpp"
#include "topology/words.hpp"

// Checks the arguments of the C functions before use. Each check throws a UsageError that names the
// argument.
namespace winnow::comm {

inline void expect_memory(const void* memory, std::uint64_t count, std::size_t unit,
                          const char* what) {
  const std::string wrong = memory_error(memory, count, unit);
  WINNOW_EXPECTS(wrong.empty(), std::string(what).append(wrong));
}

/// `count` objects at `array`.
template <class T>
std::span<T> expect_array(T* array, std::uint64_t count, const char* what) {
  expect_memory(array, count, sizeof(T), what);  // NOLINT(bugprone-sizeof-expression): of handles
  return {array, static_cast<std::size_t>(count)};
}

template <class T>
T& expect_given(T* pointer, const char* what) {
  expect_memory(pointer, 1, 1, what);
  return *pointer;
}

inline bool flag_of(std::int32_t flag, const char* what) {
  WINNOW_EXPECTS(flag == 0 || flag == 1,
                 std::string(what) + " is " + std::to_string(flag) + ": must be 1 or 0");
  return flag == 1;
}

inline double expect_finite(double number, const char* what) {
  WINNOW_EXPECTS(std::isfinite(number),
                 std::string(what) + " is " + number_text(number) + ": must be a finite number");
  return number;
}

/// How many bytes of a structure its caller cannot do without: up to the last member that is
/// neither optional nor younger than the structure.
constexpr std::size_t least_bytes(const winnow_tcp_meeting*) {
  return offsetof(winnow_tcp_meeting, job);
}
constexpr std::size_t least_bytes(const winnow_tcp_options*) {
  return sizeof(std::uint32_t);
}
constexpr std::size_t least_bytes(const winnow_nccl_options*) {
  return sizeof(std::uint32_t);
}
constexpr std::size_t least_bytes(const winnow_transport_functions*) {
  return offsetof(winnow_transport_functions, destroy);
}
constexpr std::size_t least_bytes(const winnow_reducer_settings*) {
  return sizeof(std::uint32_t);
}
constexpr std::size_t least_bytes(const winnow_segment*) {
  return offsetof(winnow_segment, input);
}
constexpr std::size_t least_bytes(const winnow_scatter*) {
  return sizeof(winnow_scatter);
}
constexpr std::size_t least_bytes(const winnow_rows*) {
  return sizeof(winnow_rows);
}
constexpr std::size_t least_bytes(const winnow_second_moment*) {
  return sizeof(winnow_second_moment);
}

/// A structure as this version has it. `given` may come from an older version, whose structure is
/// shorter, or from a newer one, whose further members must be zero. Fields that it lacks stay as
/// in `known`.
template <class Struct>
Struct read(const Struct* given, const char* what, Struct known = {}) {
  static_assert(std::is_trivially_copyable_v<Struct>);
  constexpr std::size_t kMostYounger = 512;  // bytes of members that are not known here
  const auto* const begin = reinterpret_cast<const char*>(expect_array(given, 1, what).data());
  std::uint32_t bytes = 0;
  std::memcpy(&bytes, begin, sizeof bytes);
  WINNOW_EXPECTS(
      bytes >= least_bytes(given) && bytes <= sizeof(Struct) + kMostYounger &&
          bytes % sizeof(std::uint32_t) == 0,
      std::string(what) + " has struct_bytes " + std::to_string(bytes) + ": must be its sizeof");
  for (std::size_t byte = sizeof(Struct); byte < bytes; ++byte) {
    WINNOW_EXPECTS(begin[byte] == 0, std::string(what) +
                                         " uses a member that this version of Winnow does not "
                                         "know: it must be newer");
  }
  std::memcpy(&known, begin, bytes < sizeof(Struct) ? bytes : sizeof(Struct));
  return known;
}

}  // namespace winnow::comm
