// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "kernels/select_sums.hpp"

#include <algorithm>
#include <numeric>

#include "kernels/dispatch/bodies.hpp"

namespace winnow::kernels {

namespace reference {
SelectResult select_sums(const Exec& exec, const OwnedSums& owned,
                         std::span<const SparseView> terms, SelectBound& state, SumLists& out);
SelectResult keep_sums(const Exec& exec, const OwnedSums& owned, std::span<const SparseView> terms,
                       SumLists& out);
}  // namespace reference
namespace cpu {
SelectResult select_sums(const Exec& exec, const OwnedSums& owned,
                         std::span<const SparseView> terms, SelectBound& state, SumLists& out);
SelectResult keep_sums(const Exec& exec, const OwnedSums& owned, std::span<const SparseView> terms,
                       SumLists& out);
}  // namespace cpu

namespace {

void check(const Exec& exec, const OwnedSums& owned, std::span<const SparseView> terms,
           const SumLists& out) {
  WINNOW_EXPECTS(owned.own.partition != nullptr && owned.own.partition->owners() == terms.size(),
                 "there must be a term, maybe empty, for each owner");
  WINNOW_EXPECTS(out.touched.size() == out.sum.size() && out.touched.size() <= owned.most,
                 "touched and sum must have equal sizes, at most `most`");
  WINNOW_EXPECTS(exec.workspace != nullptr, "selection needs Exec::workspace");
}

}  // namespace

SelectResult select_sums(const Exec& exec, const OwnedSums& owned,
                         std::span<const SparseView> terms, SelectBound& state, SumLists& out) {
  check(exec, owned, terms, out);
  WINNOW_EXPECTS(
      !out.index.empty() && out.index.size() <= owned.count && out.value.size() == out.index.size(),
      "index and value must have k elements each, 1 <= k <= count");
  const SelectResult result = dispatch_on_host(exec, reference::select_sums, cpu::select_sums,
                                               NoBody{}, owned, terms, state, out);
  if (!result.finite) {
    std::iota(out.index.begin(), out.index.end(), static_cast<std::uint32_t>(owned.begin));
    std::ranges::fill(out.value, 0.0F);
  }
  return result;
}

SelectResult keep_sums(const Exec& exec, const OwnedSums& owned, std::span<const SparseView> terms,
                       SumLists& out) {
  check(exec, owned, terms, out);
  WINNOW_EXPECTS(out.index.size() == owned.count && out.value.size() == owned.count,
                 "index and value must have a place for each element: all may be kept");
  WINNOW_EXPECTS(owned.own.bound > 0 && owned.listed <= owned.own.index.size(),
                 "all elements that reach the bound, which is above 0, must be listed");
  const SelectResult result =
      dispatch_on_host(exec, reference::keep_sums, cpu::keep_sums, NoBody{}, owned, terms, out);
  if (!result.finite) out.index = out.index.first(0);
  out.value = out.value.first(out.index.size());
  return result;
}

}  // namespace winnow::kernels
