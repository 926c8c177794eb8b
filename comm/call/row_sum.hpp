// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <winnow/allreducer.hpp>

#include "comm/call/request.hpp"
#include "comm/schedule/rows.hpp"

namespace winnow::comm {

/// A sum of rows of a table, which are no segments: ranks give as many as they have.
class RowSum final : public Request {
 public:
  /// `sums`: where the result goes. It and the rows stay until the call is done.
  RowSum(const RowTable& table, std::span<const std::uint64_t> ids, const ConstElements& rows,
         ReduceOp op, const World& world, RowMemory& sums);

  std::uint64_t id(std::uint64_t of_segments) const override;
  std::string lines(const Options& options) const override;
  std::string refusal(const Setup& setup, const ParameterStates& states) const override;
  bool is_plain() const override { return true; }
  std::string capture_refusal() const override;
  Bucket plan(std::uint64_t id, const Options& options, const World& world,
              const compress::Compressor& compressor, ParameterStates& states) const override;
  bool may_go_by_ring() const override { return false; }
  bool waits() const override { return true; }
  bool reduce(const CallParts& call) const override;
  std::span<const Segment> result() const override { return {&result_, 1}; }

 private:
  std::uint64_t elements() const { return table_.rows * table_.width; }

  const RowTable table_;
  const std::span<const std::uint64_t> ids_;
  const ConstElements rows_;
  const std::string name_;   // of the table, in errors
  const Segment segment_;    // names it
  const std::string wrong_;  // why ranks cannot even know what the table is, or empty
  RowMemory& sums_;
  mutable Segment result_;  // once reduced
};

}  // namespace winnow::comm
