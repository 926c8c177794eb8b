// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <span>
#include <vector>

#include "kernels/terms.hpp"
#include "tests/harness/kernel_place.hpp"
#include "tests/kernels/cases/add_cases.hpp"

namespace winnow::tests {

/// The terms of ranks, in the memory of a place.
class TermsOnPlace {
 public:
  TermsOnPlace(const Exec& exec, std::span<const SumList> lists) {
    for (const SumList& list : lists) {
      kernels::Term term = list.term();
      term.index = index_.emplace_back(exec, list.index).span();
      term.value =
          value_.emplace_back(exec, std::vector(term.value.begin(), term.value.end())).span();
      term.coded = std::as_bytes(coded_.emplace_back(exec, list.coded).span());
      terms_.push_back(term);
    }
  }
  std::span<const kernels::Term> span() const { return terms_; }
  kernels::SparseView view(std::size_t i) const { return {terms_[i].index, terms_[i].value}; }

 private:
  std::deque<OnPlace<std::uint32_t>> index_;
  std::deque<OnPlace<float>> value_;
  std::deque<OnPlace<std::uint64_t>> coded_;
  std::vector<kernels::Term> terms_;
};

}  // namespace winnow::tests
