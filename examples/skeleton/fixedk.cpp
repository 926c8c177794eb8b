// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "examples/skeleton/fixedk.hpp"

#include <algorithm>
#include <string>
#include <winnow/error.hpp>

#include "topology/words.hpp"

namespace winnow::compress {

namespace {

/// "fixedk:64".
Choice parse(std::string_view argument, const Codings&) {
  std::uint32_t k = 0;
  const std::string given(argument);
  WINNOW_EXPECTS(
      read_number(argument, k) && k > 0,
      "fixedk takes how many elements of a parameter are kept, such as fixedk:64, not '" + given +
          "'");
  return {.selection = &kFixedK,
          .argument = static_cast<double>(k),
          .name = "fixedk:" + std::to_string(k)};
}

std::uint64_t kept(double k, std::uint64_t count) {
  return std::min(static_cast<std::uint64_t>(k), count);
}

// It selects as topk does, so it shares topk's passes. One with a rule of its own calls kernels of
// its own here, as threshold.cpp does.
const Chooses& largest() {
  return std::get<Chooses>(kTopK.support);
}

}  // namespace

/// The K elements of each parameter that are largest in |acc|, ties to the lowest index, whatever
/// the parameter's length.
constinit const Selection kFixedK{
    .name = "fixedk",
    .grammar = "fixedk:K",
    .parse = parse,
    .kept = kept,
    .support = Chooses{
        .accumulate = [](const Exec& exec, auto jobs) { largest().accumulate(exec, jobs); },
        .accumulate_scratch = [](const Exec& exec,
                                 auto jobs) { return largest().accumulate_scratch(exec, jobs); },
        .select_sums = [](const Exec& exec, auto jobs) { largest().select_sums(exec, jobs); },
        .select_sums_scratch = [](const Exec& exec,
                                  auto jobs) { return largest().select_sums_scratch(exec, jobs); },
    },
};

}  // namespace winnow::compress
