// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include <winnow/error.hpp>

#include "compress/selection.hpp"

namespace winnow::compress {

namespace {

Choice parse(std::string_view argument, const Codings&) {
  WINNOW_EXPECTS(argument.empty(), "none takes no argument, not '" + std::string(argument) + "'");
  return choose_everything("none");
}

}  // namespace

/// Every element, as it is or in the value coding.
constinit const Selection kNone{
    .name = "none",
    .grammar = "none",
    .parse = parse,
    .kept = [](double, std::uint64_t count) { return count; },
    .support = KeepsAll{},
};

Choice choose_everything(std::string name) {
  return {.selection = &kNone, .argument = 0, .name = std::move(name)};
}

}  // namespace winnow::compress
