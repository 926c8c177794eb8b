// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <vector>
#include <winnow/allreducer.hpp>
#include <winnow/exec.hpp>

#include "comm/plan/bucket.hpp"
#include "comm/schedule/exchange.hpp"

namespace winnow::comm {

/// The segments of a call without elements of 16 bits: where there are such, views of float32
/// scratch from exec.workspace, which lives as long as the call, stand for them; the others stay
/// views of the caller's.
class Widened {
 public:
  /// Starts a call. Elements are not touched, and scratch holds nothing yet.
  void view(const Exec& exec, std::span<const Segment> segments);
  /// In the order given.
  std::span<const Segment> segments() const { return wide_; }
  /// Brings the gradients to where segments() view them: widens those of 16 bits, and copies inputs
  /// to outputs.
  void read(const Exec& exec) const;
  /// Whether read() finds the gradient of a segment again when the call has written to segments().
  bool has_original(std::size_t segment) const;
  /// Whether the sums of parts [first, last) stay finite where they are to be narrowed, times
  /// factor where they are still Exchange::sum.
  bool fits(const Exec& exec, const Bucket& bucket, std::span<const Exchange> exchanges) const;
  /// The same as a word on the device, for the verdict.
  void judge(const Exec& exec, const Bucket& bucket, std::span<const Exchange> exchanges,
             kernels::CallStatus& verdict) const;
  /// Rounds what was widened back to where it came from.
  void narrow(const Exec& exec) const;

 private:
  template <class Visit>
  void visit_sums(const Bucket& bucket, std::span<const Exchange> exchanges,
                  const Visit& visit) const;

  std::span<const Segment> given_, wide_;
  std::vector<Segment> scratch_;  // what wide_ views where they differ
};

}  // namespace winnow::comm
