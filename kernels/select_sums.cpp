// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "kernels/select_sums.hpp"

#include <algorithm>
#include <numeric>

#include "kernels/dispatch.hpp"

namespace winnow::kernels {

namespace reference {
SelectResult select_sums(const Exec& exec, const OwnedSums& owned,
                         std::span<const SparseView> terms, SelectBound& state, SumLists& out);
}  // namespace reference
namespace cpu {
SelectResult select_sums(const Exec& exec, const OwnedSums& owned,
                         std::span<const SparseView> terms, SelectBound& state, SumLists& out);
}  // namespace cpu

SelectResult select_sums(const Exec& exec, const OwnedSums& owned,
                         std::span<const SparseView> terms, SelectBound& state, SumLists& out) {
  WINNOW_EXPECTS(owned.own.partition != nullptr && owned.own.partition->owners() == terms.size(),
                 "there must be a term, maybe empty, for each owner");
  WINNOW_EXPECTS(
      !out.index.empty() && out.index.size() <= owned.count && out.value.size() == out.index.size(),
      "index and value must have k elements each, 1 <= k <= count");
  WINNOW_EXPECTS(out.touched.size() == out.sum.size() && out.touched.size() <= owned.most,
                 "touched and sum must have equal sizes, at most `most`");
  WINNOW_EXPECTS(exec.workspace != nullptr, "selection needs Exec::workspace");
  const SelectResult result =
      dispatch(exec, reference::select_sums, cpu::select_sums, NoBody{}, owned, terms, state, out);
  if (!result.finite) {
    std::iota(out.index.begin(), out.index.end(), static_cast<std::uint32_t>(owned.begin));
    std::ranges::fill(out.value, 0.0F);
  }
  return result;
}

}  // namespace winnow::kernels
