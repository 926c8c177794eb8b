// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "comm/plan/presets.hpp"

#include <algorithm>
#include <iterator>
#include <utility>

namespace winnow::comm {
namespace {

constexpr std::pair<std::string_view, std::string_view> kPresets[] = {
    {"dgc", "compressor=topk:0.001:warmup=1000 precondition=momentum:0.9:masked schedule=gather"},
    {"oktopk", "compressor=topk:0.01 schedule=balanced"},
    {"onebit", "compressor=sign schedule=balanced"},
    {"qgz", "compressor=int4 schedule=two_level:balanced decay=0"},
    {"redsync", "compressor=topk:0.001,mean:block=65536 schedule=gather min_bytes=131072"},
    {"scalecom", "compressor=topk:0.01 schedule=shared"},
    {"sparcml", "compressor=topk:0.01 schedule=doubling"},
    {"sparseloco", "compressor=blocktopk:64/4096,int2 schedule=gather decay=0.95"},
    {"swcaffe", "compressor=none schedule=two_level:balanced"},
    {"zen", "compressor=threshold,bitmap schedule=balanced"},
};

}  // namespace

std::string_view preset_words(std::string_view name) {
  const auto preset = std::ranges::find(kPresets, name, [](const auto& p) { return p.first; });
  return preset == std::end(kPresets) ? std::string_view() : preset->second;
}

std::string preset_names() {
  std::string names;
  for (const auto& [name, words] : kPresets) (names += names.empty() ? "" : " ") += name;
  return names;
}

}  // namespace winnow::comm
