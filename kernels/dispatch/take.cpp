// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "kernels/take.hpp"

#include "kernels/dispatch/bodies.hpp"

namespace winnow::kernels {

namespace {

void check(const Exec& exec, std::size_t count, std::uint32_t base,
           std::span<const std::uint32_t> index, std::span<const float> value) {
  WINNOW_EXPECTS(index.size() == value.size(), "a support needs a value for each of its positions");
  if (exec.place == Place::cuda) return;  // what lies in device memory is not looked into
  WINNOW_EXPECTS(index.empty() || (index.front() >= base && index.back() - base < count),
                 "a support must lie within the elements");
}

}  // namespace

void take(const Exec& exec, std::span<float> elements, std::uint32_t base,
          std::span<const std::uint32_t> index, std::span<float> value) {
  check(exec, elements.size(), base, index, value);
  dispatch(exec, &Bodies::take, elements, base, index, value);
}

void put(const Exec& exec, std::span<float> elements, std::uint32_t base, const SparseView& list) {
  check(exec, elements.size(), base, list.index, list.value);
  dispatch(exec, &Bodies::put, elements, base, list);
}

}  // namespace winnow::kernels
