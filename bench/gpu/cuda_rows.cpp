// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "bench/gpu/cuda_rows.hpp"

#include <algorithm>
#include <cmath>
#include <exception>
#include <random>
#include <string>
#include <winnow/error.hpp>

#include "bench/gpu/cuda_inputs.hpp"

namespace winnow::bench {

void fill(std::span<float> device, std::uint32_t seed, StreamRef stream) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> pattern(std::min<std::size_t>(device.size(), std::size_t{1} << 22));
  std::generate(pattern.begin(), pattern.end(), [&] { return normal(random); });
  for (std::size_t at = 0; at < device.size(); at += pattern.size()) {
    const std::size_t count = std::min(pattern.size(), device.size() - at);
    kernels::cuda::enqueue_copy(device.subspan(at, count), std::span(pattern).first(count), stream);
  }
  stream.synchronize();
}

CudaInputs::Set::Set(std::size_t count, std::uint32_t seed, StreamRef stream)
    : gradient(count + 1),
      residual(zeros<float>(count, stream)),
      target(zeros<float>(count, stream)),
      state(zeros<kernels::SelectBound>(1, stream)),
      result(1),
      not_finite(1) {
  fill(gradient.span(), seed, stream);
}

CudaInputs::CudaInputs(cudaStream_t on, std::size_t elements, double density, std::size_t l2_bytes)
    : stream(on),
      count(elements),
      k(static_cast<std::size_t>(std::ceil(density * static_cast<double>(elements)))) {
  // All other sets pass through the cache before a set's turn comes again.
  constexpr std::size_t kMostSets = 64;
  const std::size_t most = std::min(2 * l2_bytes / (count * sizeof(float)) + 1, kMostSets);
  for (std::uint32_t s = 0; s < most; ++s) sets.emplace_back(count, s, stream);
}

CudaRows::CudaRows(cudaStream_t stream, std::size_t count, double density, std::size_t l2_bytes)
    : inputs_(std::make_unique<CudaInputs>(stream, count, density, l2_bytes)) {
  for (const auto add : {add_pass_rows, add_list_rows, add_sums_rows, add_element_rows,
                         add_call_rows, add_rival_rows}) {
    try {
      add(*inputs_, rows_);
    } catch (const std::exception& error) {
      const std::string why = error.what();
      rows_.push_back({"rows that could not be made", 0, [why](std::size_t) { throw Error(why); }});
    }
  }
}
CudaRows::~CudaRows() = default;

}  // namespace winnow::bench
