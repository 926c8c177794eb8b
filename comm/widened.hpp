// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <vector>
#include <winnow/allreducer.hpp>
#include <winnow/exec.hpp>

#include "comm/bucket.hpp"
#include "comm/exchange.hpp"

namespace winnow::comm {

/// The segments of a call as float32: those that are stay views of the caller's, the others become
/// views of scratch from exec.workspace, which lives as long as the call.
class Widened {
 public:
  /// Starts a call.
  void widen(const Exec& exec, std::span<const Segment> segments);
  /// All of float32, in the order given.
  std::span<const Segment> segments() const { return floats_; }
  /// Whether the sums of parts [first, last) stay finite where they are to be narrowed, times
  /// factor where they are still Exchange::sum.
  bool fits(const Exec& exec, const Bucket& bucket, std::span<const Exchange> exchanges,
            float factor) const;
  /// Rounds what was widened back to where it came from.
  void narrow(const Exec& exec) const;

 private:
  std::span<const Segment> given_, floats_;
  std::vector<Segment> scratch_;  // what floats_ views where they differ
};

}  // namespace winnow::comm
