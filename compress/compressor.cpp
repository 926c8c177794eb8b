// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "compress/compressor.hpp"

#include <array>
#include <vector>
#include <winnow/error.hpp>

#include "compress/nearest.hpp"
#include "compress/none.hpp"
#include "compress/topk.hpp"

namespace winnow::compress {

namespace {
constexpr std::array kCompressors = {
    CompressorEntry{"none", "none", make_none},
    CompressorEntry{"topk", "topk:DENSITY", make_topk},
};
}  // namespace

std::span<const CompressorEntry> compressors() {
  return kCompressors;
}

std::unique_ptr<Compressor> make_compressor(std::string_view specification) {
  const auto colon = specification.find(':');
  const auto word = specification.substr(0, colon);
  const auto argument =
      colon == std::string_view::npos ? std::string_view() : specification.substr(colon + 1);
  std::vector<std::string_view> known;
  for (const CompressorEntry& entry : kCompressors) {
    if (entry.name == word) return entry.make(argument);
    known.push_back(entry.name);
  }
  fail_usage("unknown compressor '" + std::string(specification) + "'; did you mean '" +
             std::string(nearest_word(word, known)) + "'?");
}

}  // namespace winnow::compress
