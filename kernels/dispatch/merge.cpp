// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "kernels/merge.hpp"

#include "kernels/dispatch/bodies.hpp"

namespace winnow::kernels {

namespace reference {
std::size_t merge(const Exec&, const SparseView&, const SparseView&, std::span<std::uint32_t>,
                  std::span<float>);
}  // namespace reference

namespace cpu {
std::size_t merge(const Exec&, const SparseView&, const SparseView&, std::span<std::uint32_t>,
                  std::span<float>);
}  // namespace cpu

std::size_t merge(const Exec& exec, const SparseView& first, const SparseView& second,
                  std::span<std::uint32_t> index, std::span<float> value) {
  WINNOW_EXPECTS(
      first.index.size() == first.value.size() && second.index.size() == second.value.size(),
      "a list needs as many values as indices");
  const std::size_t most = first.index.size() + second.index.size();
  WINNOW_EXPECTS(index.size() >= most && value.size() >= most,
                 "index and value need room for both lists");
  return dispatch_on_host(exec, reference::merge, cpu::merge, NoBody{}, first, second, index,
                          value);
}

}  // namespace winnow::kernels
