// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <winnow/winnow.h>

#include <cstdint>
#include <cstring>
#include <exception>
#include <new>
#include <string>
#include <type_traits>
#include <winnow/error.hpp>

namespace winnow::comm {

/// The status that tells a caller in C of an exception, whose text becomes the last error.
inline int status_of(const std::exception& error) noexcept {
  winnow_set_last_error(error.what());
  if (dynamic_cast<const UsageError*>(&error) != nullptr) return WINNOW_USAGE_ERROR;
  if (dynamic_cast<const CommError*>(&error) != nullptr) return WINNOW_COMM_ERROR;
  if (dynamic_cast<const CudaError*>(&error) != nullptr) return WINNOW_CUDA_ERROR;
  if (dynamic_cast<const std::bad_alloc*>(&error) != nullptr) return WINNOW_MEMORY_ERROR;
  return WINNOW_INTERNAL_ERROR;
}

/// Runs the body of a function of the C interface.
template <class Body>
int guarded(const Body& body) noexcept {
  try {
    body();
    return WINNOW_SUCCESS;
  } catch (const std::exception& error) {
    return status_of(error);
  } catch (...) {
    winnow_set_last_error("an exception of an unknown type");
    return WINNOW_INTERNAL_ERROR;
  }
}

template <class T>
T& expect_given(T* pointer, const char* what) {
  WINNOW_EXPECTS(pointer != nullptr, std::string(what) + " is NULL");
  return *pointer;
}

/// A structure as this version has it. `given` may come from an older version, whose structure is
/// shorter, or from a newer one, whose further members must be zero.
template <class Struct>
Struct read(const Struct* given, const char* what) {
  static_assert(std::is_trivially_copyable_v<Struct>);
  const std::uint32_t bytes = expect_given(given, what).struct_bytes;
  const auto* const begin = reinterpret_cast<const char*>(given);
  WINNOW_EXPECTS(
      bytes >= sizeof(std::uint32_t) && bytes < (1U << 16),
      std::string(what) + " has struct_bytes " + std::to_string(bytes) + ": must be its sizeof");
  for (std::size_t byte = sizeof(Struct); byte < bytes; ++byte) {
    WINNOW_EXPECTS(begin[byte] == 0, std::string(what) +
                                         " uses a member that this version of Winnow does not "
                                         "know: it must be newer");
  }
  Struct known{};
  std::memcpy(&known, given, bytes < sizeof(Struct) ? bytes : sizeof(Struct));
  return known;
}

}  // namespace winnow::comm
