// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <winnow/options.hpp>
#include <winnow/stats.hpp>
#include <winnow/topology.hpp>
#include <winnow/transport.hpp>

#pragma GCC visibility push(default)

namespace winnow {

/// One parameter's elements in a bucket: a view of the caller's tensor.
struct Segment {
  std::span<float> elements;  ///< gradient in, sum or average out
  std::uint64_t id = 0;  ///< the parameter's, stable over steps and restarts; residuals go by it
  int dimensions = 0;    ///< of the tensor; 1 (norms, biases) travels dense by default; 0: unknown
  std::string_view name = {};  ///< for Options::exempt
};

/// A call under way. In this version a call is complete when it returns.
class Work {
 public:
  void wait() {}
  bool test() const { return true; }
};

/// Replaces MPI_Allreduce or ncclAllReduce for gradients: sums a bucket over all ranks, sending
/// only what matters and carrying the rest as residuals into the next call. All ranks hold the same
/// bits after every call.
///
/// All ranks make the same calls in the same order, with the same ids and counts; one thread at a
/// time. Errors:
/// - UsageError, on every rank and with bucket and residuals untouched, where options are wrong or
///   differ between ranks, or ids, counts or exemptions do at the first call of a bucket.
/// - CommError where the ranks cannot finish, or call known buckets in different order (which a
///   dense call, having no header, cannot see). The bucket then reads zero and what was in it is in
///   the residuals, but for tensors that lie one after another and travel dense: the collective
///   works on them in place, and what it had begun with is lost. Ranks that had finished keep their
///   result. From then on every call throws CommError and touches nothing; the memory of buckets
///   must live until the transport is destroyed.
class AllReducer {
 public:
  /// Collective: compares the options of all ranks. `transport` is used by this object alone.
  /// Options::from_environment, the default, throws before it meets the other ranks.
  explicit AllReducer(std::shared_ptr<Transport> transport,
                      const Options& options = Options::from_environment());
  ~AllReducer();
  AllReducer(AllReducer&&) noexcept;
  AllReducer& operator=(AllReducer&&) noexcept;

  /// Reduces a bucket in place: sums, or by default averages (Options::op). Ids must differ within
  /// a bucket and counts never change; names and dimensions count at a bucket's first call.
  Work all_reduce(std::span<const Segment> bucket);
  /// Reduces one tensor in place. Tensors of different parameters need different ids.
  Work all_reduce(std::span<float> elements, std::uint64_t id);

  const Options& options() const;
  const Topology& topology() const;
  Transport& transport();
  const Stats& last() const;    ///< of the last call
  const Stats& totals() const;  ///< of all calls; schedule, reason and coding are the last one's

  /// What this rank has not sent yet of a parameter; empty where there is nothing.
  std::span<const float> residual(std::uint64_t id) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace winnow

#pragma GCC visibility pop
