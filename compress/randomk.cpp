// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "compress/selection.hpp"

namespace winnow::compress {

namespace {

Choice parse(std::string_view argument, const Codings&) {
  return choose_density(kRandomK, argument);
}

}  // namespace

/// max(1, ceil(density * count)) positions of each message, one from each of as many strata, drawn
/// anew in every call (Stich, Cordonnier, Jaggi: Sparsified SGD with Memory, NeurIPS 2018). All
/// ranks draw the same ones, so no indices travel and messages of all ranks sum value by value.
constinit const Selection kRandomK{
    .name = "randomk",
    .grammar = "randomk:DENSITY[:warmup=CALLS]",
    .parse = parse,
    .kept = kept_of_density,
    .support = Draws{&kSeededCoding},
};

}  // namespace winnow::compress
