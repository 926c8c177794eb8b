// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/half.cuh"
#include "kernels/cuda/launch_pieces.cuh"
#include "kernels/half.hpp"

namespace winnow::kernels::cuda {

void widen(const Exec& exec, ElementType type, std::span<const std::uint16_t> in,
           std::span<float> out) {
  const ConstElements halves(in.data(), in.size(), type);
  launch_piece(exec, Widen{device_elements(halves), out.data(), in.size()});
}

void narrow(const Exec& exec, ElementType type, std::span<const float> in,
            std::span<std::uint16_t> out) {
  const Elements halves(out.data(), out.size(), type);
  launch_piece(exec, Narrow{in.data(), device_elements(halves), in.size()});
}

void keep_rest(const Exec& exec, const RestJob& job) {
  launch_piece(exec, KeepRest{job, range_of(job.type), job.sums.size()});
}

}  // namespace winnow::kernels::cuda
