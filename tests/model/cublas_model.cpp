// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
// A model of the part of cuBLAS that the trainer calls, on the model of the CUDA runtime: products
// are plain loops that wait in their stream like everything else. It refuses what cuBLAS refuses,
// and a handle without a stream, since the model has no default stream. In any math mode it has the
// precision of float32.
#include <cublas_v2.h>

#include <algorithm>
#include <cstddef>

#include "tests/model/cuda_model.hpp"

using namespace winnow::tests;

struct cublasContext {
  cudaStream_t stream = nullptr;
};

namespace {

/// op(x) of a matrix whose columns are `leading` apart.
struct Factor {
  const float* data;
  int leading;
  bool transposed;

  std::ptrdiff_t row_step() const { return transposed ? leading : 1; }
  std::ptrdiff_t column_step() const { return transposed ? 1 : leading; }
};

}  // namespace

// NOLINTBEGIN(readability-inconsistent-declaration-parameter-name): the library's own names
extern "C" {

cublasStatus_t cublasCreate_v2(cublasHandle_t* handle) {
  *handle = new cublasContext;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasDestroy_v2(cublasHandle_t handle) {
  delete handle;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasSetStream_v2(cublasHandle_t handle, cudaStream_t stream) {
  handle->stream = stream;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasSetMathMode(cublasHandle_t, cublasMath_t) {
  return CUBLAS_STATUS_SUCCESS;
}
const char* cublasGetStatusString(cublasStatus_t status) {
  return status == CUBLAS_STATUS_INVALID_VALUE ? "CUBLAS_STATUS_INVALID_VALUE" : "an error";
}

/// c = alpha op(a) op(b) + beta c, with m x k and k x n factors, column by column; each column sums
/// k columns of a in order.
cublasStatus_t cublasSgemm_v2(cublasHandle_t handle, cublasOperation_t take_a,
                              cublasOperation_t take_b, int m, int n, int k, const float* alpha,
                              const float* a, int lda, const float* b, int ldb, const float* beta,
                              float* c, int ldc) {
  const Factor left{a, lda, take_a != CUBLAS_OP_N}, right{b, ldb, take_b != CUBLAS_OP_N};
  if (m < 0 || n < 0 || k < 0 || lda < std::max(1, left.transposed ? k : m) ||
      ldb < std::max(1, right.transposed ? n : k) || ldc < std::max(1, m)) {
    return CUBLAS_STATUS_INVALID_VALUE;
  }
  const auto multiply = [=, factor = *alpha, keep = *beta] {
    for (int column = 0; column < n; ++column) {
      float* const sums = c + static_cast<std::ptrdiff_t>(column) * ldc;
      for (int row = 0; row < m; ++row) sums[row] = keep == 0 ? 0 : keep * sums[row];
      for (int i = 0; i < k; ++i) {
        const float* const from = left.data + i * left.column_step();
        const float times =
            factor * right.data[i * right.row_step() + column * right.column_step()];
        const std::ptrdiff_t step = left.row_step();
        for (int row = 0; row < m; ++row) sums[row] += from[row * step] * times;
      }
    }
  };
  const cudaError_t status = enqueue_or_capture(handle->stream, cudaGraphNodeTypeKernel, multiply);
  return status == cudaSuccess ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_EXECUTION_FAILED;
}

}  // extern "C"
// NOLINTEND(readability-inconsistent-declaration-parameter-name)
