// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <vector>

#include "bench/gpu/cuda_rows.hpp"
#include "kernels/cuda/memory.hpp"
#include "kernels/feedback_select.hpp"

namespace winnow::bench {

using kernels::cuda::DeviceArray;
using kernels::cuda::StreamRef;

/// Device memory full of zeros.
template <class T>
DeviceArray<T> zeros(std::size_t count, StreamRef stream) {
  DeviceArray<T> array(count);
  WINNOW_CUDA_TRY(cudaMemsetAsync(array.data(), 0, count * sizeof(T), stream.get()));
  stream.synchronize();
  return array;
}

/// Normal numbers, from a pattern that repeats.
void fill(std::span<float> device, std::uint32_t seed, StreamRef stream);

/// The inputs of rows. There are so many sets that no round finds its own set in the L2 cache.
struct CudaInputs {
  struct Set {
    Set(std::size_t count, std::uint32_t seed, StreamRef stream);
    DeviceArray<float> gradient;  // one more, for a gradient aligned unlike the residual
    DeviceArray<float> residual, target;
    DeviceArray<kernels::SelectBound> state;
    DeviceArray<kernels::SelectResult> result;
    DeviceArray<std::uint32_t> not_finite;
  };

  CudaInputs(cudaStream_t on, std::size_t elements, double density, std::size_t l2_bytes);

  const Set& set(std::size_t round) const { return sets[round % sets.size()]; }
  /// The Exec of the stream, with workspaces for scratch.
  Exec exec() const {
    Exec exec = stream.exec();
    exec.workspace = &workspace;
    exec.device_workspace = &device_workspace;
    return exec;
  }

  StreamRef stream;
  std::size_t count, k;
  std::deque<Set> sets;
  mutable Workspace workspace;  // for scratch
  mutable Workspace device_workspace{kernels::cuda::kDeviceMemory};
};

/// Rows of the passes over all elements; the first is the device's copy.
void add_pass_rows(const CudaInputs& inputs, std::vector<CudaRow>& rows);
/// Rows of the operations on each element, or on each entry of a support.
void add_element_rows(const CudaInputs& inputs, std::vector<CudaRow>& rows);
/// Rows of the operations on selected elements.
void add_list_rows(const CudaInputs& inputs, std::vector<CudaRow>& rows);
/// Rows of an owner's operations on the messages of others.
void add_sums_rows(const CudaInputs& inputs, std::vector<CudaRow>& rows);
/// Rows of whole calls.
void add_call_rows(const CudaInputs& inputs, std::vector<CudaRow>& rows);
/// Rows of the selections of other libraries.
void add_rival_rows(const CudaInputs& inputs, std::vector<CudaRow>& rows);

}  // namespace winnow::bench
