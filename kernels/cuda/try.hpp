// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_runtime_api.h>

#include <string>
#include <winnow/error.hpp>

namespace winnow::kernels::cuda {

/// Throws CudaError for a `call` that the runtime refused, and takes the error from the runtime,
/// where who asks next would take it for its own.
[[noreturn]] inline void fail_cuda(cudaError_t status, const char* call) {
  (void)cudaGetLastError();
  throw CudaError(std::string(cudaGetErrorName(status)) + ": " + cudaGetErrorString(status) +
                      " (from " + call + ")",
                  static_cast<int>(status));
}

}  // namespace winnow::kernels::cuda

/// Makes a call of the CUDA runtime; throws CudaError where it does not return cudaSuccess.
#define WINNOW_CUDA_TRY(call)                                                                   \
  do {                                                                                          \
    const cudaError_t winnow_status = (call);                                                   \
    if (winnow_status != cudaSuccess) ::winnow::kernels::cuda::fail_cuda(winnow_status, #call); \
  } while (false)
