// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <vector>
#include <winnow/allreducer.hpp>
#include <winnow/exec.hpp>

#include "comm/plan/bucket.hpp"
#include "compress/precondition.hpp"

namespace winnow::comm {

/// The segments of a call as its parts take them. Where they do not take 16-bit elements as given,
/// views of float32 scratch, from exec.workspace for the duration of the call, stand for these; all
/// others are views of the caller's elements.
class StagedSegments {
 public:
  /// Starts a call. Does not touch elements yet, and leaves scratch uninitialised.
  void view(const Exec& exec, std::span<const Segment> segments, const Bucket& bucket,
            const compress::Preconditioner& preconditioner);
  /// Instead: all as given, for a call that only keeps its gradients.
  void view_given(std::span<const Segment> segments) { given_ = wide_ = segments; }
  /// In the order given.
  std::span<const Segment> segments() const { return wide_; }
  /// Brings the gradients to segments(): widens 16-bit elements, and copies inputs to outputs.
  void read(const Exec& exec) const;
  /// Whether read() can find a segment's gradient again after the call has written to segments().
  bool has_original(std::size_t segment) const;
  /// Rounds what was widened back into the caller's elements.
  void narrow(const Exec& exec) const;

 private:
  bool is_widened(std::size_t segment) const {
    return given_[segment].elements.type() != wide_[segment].elements.type();
  }

  std::span<const Segment> given_, wide_;
  std::vector<Segment> scratch_;  // what wide_ views instead of the caller's elements
  std::vector<bool> stays_;       // by segment: as given
};

}  // namespace winnow::comm
