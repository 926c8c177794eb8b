// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include <winnow/error.hpp>

#include "bench/rank_device.hpp"

namespace winnow::bench {

struct RankDevice::Impl {};

RankDevice::RankDevice(int) {
  throw UsageError("there is no GPU here: built without CUDA");
}
RankDevice::~RankDevice() = default;
RankDevice::RankDevice(RankDevice&&) noexcept = default;

int RankDevice::number() const {
  return -1;
}

Exec RankDevice::exec() const {
  return {};
}

struct RankGraph::Impl {};

RankGraph::RankGraph(const Exec&, const std::function<void()>&) {
  throw UsageError("there are no CUDA graphs here: built without CUDA");
}
RankGraph::~RankGraph() = default;
RankGraph::RankGraph(RankGraph&&) noexcept = default;

void RankGraph::launch() const {}

}  // namespace winnow::bench
