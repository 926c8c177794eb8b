// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <winnow/allreducer.hpp>

#include "comm/call/setup.hpp"
#include "comm/plan/bucket.hpp"
#include "comm/schedule/exchange.hpp"
#include "comm/schedule/schedule.hpp"

namespace winnow::comm {

/// The parts of a call, in order: the compressed ones first.
struct CallParts {
  const Setup& setup;
  const Bucket& bucket;
  std::span<const Segment> segments;  ///< as the parts take them
  std::span<const Schedule* const> schedules;
  std::span<Exchange> exchanges;
  Stats& stats;
  compress::Header header;  ///< of the call, for messages that are of no part
  bool is_first;            ///< of the bucket: later calls take no more scratch than this one

  const Exec& exec() const { return setup.exec(); }
};

/// A caller's request to all ranks: the elements to reduce, and how such a call is planned and run.
/// Views of the caller's segments. The base is an all-reduce of gradients, by sum or average.
class Request {
 public:
  Request(std::span<const Segment> segments, ReduceOp op) : segments_(segments), op_(op) {}
  virtual ~Request() = default;
  Request(const Request&) = delete;
  Request& operator=(const Request&) = delete;

  std::span<const Segment> segments() const { return segments_; }
  ReduceOp op() const { return op_; }
  /// The number of ranks if the result is an average, else 1.
  float averaged(int ranks) const {
    return op_ == ReduceOp::average ? static_cast<float>(ranks) : 1.0F;
  }

  /// Names the bucket, given bucket_id of its segments and their stage: equal on all ranks that ask
  /// for the same. A request that cannot be met has an id that no earlier call has had.
  virtual std::uint64_t id(std::uint64_t of_segments) const { return of_segments; }
  /// In words, by which ranks find how their requests differ.
  virtual std::string lines(const Options& options) const;
  /// Why it cannot be met, whatever other ranks ask for; or empty.
  virtual std::string refusal(const Setup& setup, const ParameterStates& states) const;
  /// Whether it is no sum of gradients, so that nothing is kept of its parameters.
  virtual bool is_plain() const { return false; }
  /// Why it cannot be captured into a CUDA graph, whatever its plan; or empty.
  virtual std::string capture_refusal() const { return {}; }
  virtual Bucket plan(std::uint64_t id, const Options& options, const World& world,
                      const compress::Compressor& compressor, ParameterStates& states) const;
  /// How it would travel dense.
  virtual const Schedule& dense() const { return kDense; }
  /// Whether dense by Winnow's ring may be tried instead of the transport's own collective.
  virtual bool may_go_by_ring() const { return true; }
  /// Whether the host waits for messages within the call.
  virtual bool waits() const { return false; }

  /// Sums over ranks. Returns false if the bucket must become NaN, on all ranks. Throws Refused if
  /// a rank cannot make the call, as nobody could know before.
  virtual bool reduce(const CallParts& call) const;
  /// Whether all ranks have found their compressed parts finite. `finite`: what this rank has
  /// found. Where all have seen the same bits, they know.
  virtual bool all_agree(const CallParts&, bool finite) const { return finite; }
  /// Brings the result where the caller expects it, once it is in the segments.
  virtual void deliver(const Exec&) const {}
  /// The segments that hold the result of a call which is done.
  virtual std::span<const Segment> result() const { return segments_; }

 private:
  std::span<const Segment> segments_;
  ReduceOp op_;
};

/// Writes the sums of a call's parts to the elements, and keeps in the residuals what the sums and
/// 16-bit elements leave over. `exec`: the call's, perhaps with a condition.
void write_sums(const CallParts& call, const Exec& exec);

}  // namespace winnow::comm
