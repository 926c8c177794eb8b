// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

namespace tool {

/// What serves an optimizer of torch best.
struct Recipe {
  std::string optimizers;  ///< "Adam, AdamW"
  std::string compressor, schedule;
  std::string fewer, loss;  ///< bytes a step, and loss beside dense sums, as measured
};

/// UsageError that names the nearest one if there is none for this optimizer.
Recipe recipe_of(std::string_view optimizer);

}  // namespace tool
