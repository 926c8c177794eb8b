// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
// Kernels of the model of CUDA run on the SIMT machine.
#include <memory>
#include <utility>
#include <vector>

#include "kernels/cuda/launch.cuh"
#include "tests/model/cuda_model.hpp"
#include "tests/model/machine.hpp"

namespace winnow::tests {
namespace {

std::vector<std::unique_ptr<Machine>> machines;  // not in use

/// Reuses a machine if possible: making its threads' stacks takes far longer than most launches.
std::unique_ptr<Machine> take_machine() {
  const Lock lock(model_mutex);
  if (machines.empty()) return std::make_unique<Machine>();
  std::unique_ptr<Machine> machine = std::move(machines.back());
  machines.pop_back();
  return machine;
}

}  // namespace
}  // namespace winnow::tests

using namespace winnow::tests;

cudaError_t winnow::simt::launch(cudaStream_t stream, unsigned blocks, std::size_t shared_bytes,
                                 std::function<void(void*)> kernel) {
  constexpr unsigned kMostBlocks = 0x7fffffff;
  if (blocks == 0 || blocks > kMostBlocks) return said(cudaErrorInvalidConfiguration);
  return launch_kernel(stream, [blocks, shared_bytes, kernel = std::move(kernel)] {
    std::unique_ptr<Machine> machine = take_machine();
    try {
      machine->run(blocks, shared_bytes, kernel);
    } catch (const SimtError& error) {
      throw KernelError(error.what());
    }
    const Lock lock(model_mutex);
    machines.push_back(std::move(machine));
  });
}
