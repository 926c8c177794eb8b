// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0

// Runs the work of bench_kernels_cuda on the model of a device: each row must do its work round
// after round, and select by good bounds.
#include <exception>
#include <iostream>
#include <winnow/error.hpp>

#include "bench/gpu/cuda_inputs.hpp"
#include "kernels/cuda/stream.hpp"

namespace winnow::bench {

/// The rivals are CUB's, which the model lacks.
std::vector<CudaRow> rival_rows(const CudaInputs&) {
  return {};
}

namespace {

void run() {
  const kernels::cuda::Stream stream;
  const CudaRows rows(stream.get(), 9000, 0.01, 1 << 16);
  for (std::size_t round = 0; round < 3; ++round) {
    for (const CudaRow& row : rows.all()) {
      if (row.prepare) row.prepare(round);
      row.work(round);
      stream.synchronize();
      const bool repaired = row.passes && row.passes(round) != 1;
      if (repaired && !row.may_repair) throw Error(row.name + ": the bound was not good");
    }
  }
  std::cout << rows.all().size() << " rows\n";
}

}  // namespace
}  // namespace winnow::bench

int main() {
  try {
    winnow::bench::run();
  } catch (const std::exception& error) {
    std::cerr << "cuda_rows_on_model: " << error.what() << '\n';
    return 1;
  }
}
