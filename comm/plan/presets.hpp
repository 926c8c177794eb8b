// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

namespace winnow::comm {

/// Options under a name: what a paper does, or a library that people know. docs/options.md has the
/// sources. Returns the words that a preset stands for, empty for an unknown name.
std::string_view preset_words(std::string_view name);

/// All names, one after the other: "dgc oktopk ...".
std::string preset_names();

}  // namespace winnow::comm
