// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "kernels/add_to.hpp"

#include "kernels/cuda/add_to.hpp"
#include "kernels/dispatch/bodies.hpp"

namespace winnow::kernels {

namespace reference {
bool add_to(const Exec&, std::span<float>, std::uint32_t, std::span<const SparseView>, float);
void put_back(const Exec&, std::span<float>, std::uint32_t, const SparseView&);
}  // namespace reference

namespace cpu {
bool add_to(const Exec&, std::span<float>, std::uint32_t, std::span<const SparseView>, float);
void put_back(const Exec&, std::span<float>, std::uint32_t, const SparseView&);
}  // namespace cpu

bool add_to(const Exec& exec, std::span<float> sum, std::uint32_t base,
            std::span<const SparseView> lists, float factor) {
  return dispatch_on_host(exec, reference::add_to, cpu::add_to, NoBody{}, sum, base, lists, factor);
}

void put_back(const Exec& exec, std::span<float> sum, std::uint32_t base, const SparseView& list) {
  dispatch(exec, &Bodies::put_back, sum, base, list);
}

}  // namespace winnow::kernels
