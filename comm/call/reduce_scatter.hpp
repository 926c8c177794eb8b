// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <winnow/allreducer.hpp>

#include "comm/call/request.hpp"
#include "comm/schedule/schedule.hpp"

namespace winnow::comm {

/// A reduce-scatter of one segment's elements to `output`, which may be this rank's shard of them.
class ReduceScatter final : public Request {
 public:
  ReduceScatter(const Segment& input, const Elements& output, ReduceOp op, const World& world);

  std::uint64_t id(std::uint64_t of_segments) const override;
  std::string lines(const Options& options) const override;
  std::string refusal(const Setup& setup, const ParameterStates& states) const override;
  std::string capture_refusal() const override;
  Bucket plan(std::uint64_t id, const Options& options, const World& world,
              const compress::Compressor& compressor, ParameterStates& states) const override;
  const Schedule& dense() const override { return kDenseScatter; }
  bool may_go_by_ring() const override { return false; }
  bool waits() const override { return true; }
  /// Ranks have not seen the same messages, so they exchange whether these were finite.
  bool all_agree(const CallParts& call, bool finite) const override;
  void deliver(const Exec& exec) const override;
  std::span<const Segment> result() const override { return {&own_, 1}; }

 private:
  const Segment input_;
  const Elements output_;
  const std::string wrong_;  // refuse_scatter
  const Segment own_;        // this rank's shard of the input; empty if that is wrong
};

}  // namespace winnow::comm
