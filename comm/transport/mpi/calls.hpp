// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <string>
#include <string_view>
#include <winnow/error.hpp>
#include <winnow/mpi.hpp>

namespace winnow::comm {

// Shared by everything that calls MPI.

/// MPI's text for an error code.
inline std::string mpi_text(int code) {
  std::array<char, MPI_MAX_ERROR_STRING> text;
  int length = 0;
  if (MPI_Error_string(code, text.data(), &length) != MPI_SUCCESS)
    return "MPI error " + std::to_string(code);
  return {text.data(), static_cast<std::size_t>(length)};
}

/// Throws CommError unless `code` is MPI_SUCCESS.
inline void check_mpi(int code, std::string_view call) {
  if (code != MPI_SUCCESS) throw CommError(std::string(call) + ": " + mpi_text(code), code);
}

/// Whether MPI may be called: initialised and not finalised.
inline bool mpi_is_up() {
  int initialized = 0, finalized = 0;
  MPI_Initialized(&initialized);
  MPI_Finalized(&finalized);
  return initialized != 0 && finalized == 0;
}

/// Tests a request; returns whether it is still under way.
inline bool mpi_is_open(MPI_Request& request) noexcept {
  int done = 1;
  return request != MPI_REQUEST_NULL &&
         MPI_Test(&request, &done, MPI_STATUS_IGNORE) == MPI_SUCCESS && done == 0;
}

}  // namespace winnow::comm
