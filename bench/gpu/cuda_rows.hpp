// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace winnow::bench {

/// One line of bench_kernels_cuda. Each function takes the number of the round, by which inputs
/// rotate, and enqueues on the stream of CudaRows.
struct CudaRow {
  std::string name;
  double bytes;  ///< read and written in one round
  std::function<void(std::size_t)> work;
  std::function<void(std::size_t)> prepare = {};  ///< before `work`, outside of the time
  /// After `work`, outside of the time: how often a selection passed over the elements.
  std::function<std::uint32_t(std::size_t)> passes = {};
  bool may_repair = false;  ///< 2 passes are allowed; otherwise they are an error
};

struct CudaInputs;

/// Owns the rows and their memory.
class CudaRows {
 public:
  CudaRows(cudaStream_t stream, std::size_t count, double density, std::size_t l2_bytes);
  ~CudaRows();
  CudaRows(const CudaRows&) = delete;
  CudaRows& operator=(const CudaRows&) = delete;

  /// The first is the device's copy.
  const std::vector<CudaRow>& all() const { return rows_; }

 private:
  std::unique_ptr<const CudaInputs> inputs_;
  std::vector<CudaRow> rows_;
};

}  // namespace winnow::bench
