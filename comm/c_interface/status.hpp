// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <winnow/winnow.h>

#include <exception>
#include <new>
#include <string>
#include <winnow/error.hpp>

namespace winnow::comm {

/// The status of an exception for a caller in C; the text becomes the last error.
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

/// Runs a function that returns an answer instead of a status; returns `otherwise` if it throws.
template <class Answer, class Body>
Answer answer_or(Answer otherwise, const Body& body) noexcept {
  Answer answer = otherwise;
  (void)guarded([&] { answer = body(); });
  return answer;
}

}  // namespace winnow::comm
