// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <utility>
#include <vector>
#include <winnow/elements.hpp>
#include <winnow/exec.hpp>
#include <winnow/options.hpp>
#include <winnow/reduce_op.hpp>
#include <winnow/stats.hpp>
#include <winnow/topology.hpp>
#include <winnow/transport.hpp>

namespace winnow::comm {
class CallQueue;  // not public, so not visible
}

#pragma GCC visibility push(default)

namespace winnow {

/// One parameter's elements in a bucket: views of the caller's tensors.
struct Segment {
  Elements elements;     ///< gradient in, unless `input` has it; what becomes of it out
  std::uint64_t id = 0;  ///< the parameter's, stable over steps and restarts; residuals go by it
  int dimensions = 0;    ///< of the tensor; 1 (norms, biases) travels dense by default; 0: unknown
  std::string_view name = {};  ///< for Options::exempt
  /// The gradient, left as it is, where it is not `elements`: of the same type and size, and apart
  /// from all that is written to. One copy more (8 bytes moved an element of float32), but of 16
  /// bits none. A rank's own affair: others may work in place.
  ConstElements input = {};
};

/// A call under way, made by AllReducer::all_reduce_async. Until it is done the bucket's elements
/// and inputs, and the names of its segments, must live and be left alone. The thread that made it
/// waits for it.
class Work {
 public:
  Work() = default;  ///< nothing, and done
  Work(Work&& other) noexcept : queue_(std::move(other.queue_)), number_(other.number_) {}
  Work& operator=(Work&& other) noexcept;
  /// Waits; what wait would throw is lost, but see AllReducer: a CommError comes again.
  ~Work();

  /// Returns when the call is done, on a device too, or throws what all_reduce throws; at once if
  /// called again.
  void wait();
  /// For buckets in device memory: returns when the call's work is enqueued, or throws what
  /// all_reduce throws. All that is enqueued on `stream`, a cudaStream_t, from then on comes after
  /// that work. wait() may still follow. Of buckets in host memory the same as wait().
  void wait(void* stream);
  /// Whether the call is done, so that wait returns or throws at once. Where the transport does not
  /// allow a thread of Winnow's own, this makes progress: it runs the next call and may block.
  bool test();

 private:
  friend class AllReducer;
  Work(std::shared_ptr<comm::CallQueue> queue, std::uint64_t number)
      : queue_(std::move(queue)), number_(number) {}

  std::shared_ptr<comm::CallQueue> queue_;
  std::uint64_t number_ = 0;
};

/// Replaces MPI_Allreduce or ncclAllReduce for gradients: sums a bucket over all ranks, sending
/// only what matters and carrying the rest as residuals into the next call. All ranks hold the same
/// bits after every call.
///
/// Sums and averages of float32, bf16 and fp16 may travel compressed. All else that these two
/// reduce, too: elements of other types, minimum, maximum and product. It travels dense, keeps
/// nothing back and leaves residuals alone; Stats::reason says so. If that fails, elements read
/// zero, and only what was a Segment's input is left.
///
/// All ranks make the same calls in the same order, with the same ids and counts; one thread at a
/// time. Calls in flight run in the order in which they were made, whatever is waited for first: by
/// one thread of the AllReducer's own where Transport::allows_threads (over MPI:
/// MPI_THREAD_MULTIPLE), else inside wait and test. Errors, of calls in flight from Work::wait:
/// - UsageError, on every rank and with bucket and residuals untouched, where options are wrong or
///   differ between ranks, or ids, counts, types, operation or exemptions do at the first call of a
///   bucket (one whose input is wrong is always new).
/// - CommError where the ranks cannot finish, or call known buckets in different order (which a
///   dense call, having no header, cannot see). The bucket then reads zero and what was in it is in
///   the residuals, but for tensors that lie one after another and travel dense: the collective
///   works on them in place, and what it had begun with is lost, unless all of them have an input
///   or 16 bits. Ranks that had finished keep their
///   result. From then on every call throws CommError and touches nothing; the memory of buckets
///   must live until the transport is destroyed.
///
/// Buckets in device memory give the same bits by the same plan, also among ranks whose buckets lie
/// in host memory. A call works on the stream that the AllReducer was given: after all that is
/// enqueued there when it begins, and before all that is enqueued once it has returned or its Work
/// has waited. In gather and dense the host decides nothing by what the device finds, unless the
/// compressor is threshold: over NCCL these calls return when they are enqueued, whatever becomes
/// of them, and can be captured into a CUDA graph from the second call of a bucket on. A CommError
/// then comes from synchronize, Work::wait or the next call, and the bucket reads NaN where a
/// message was not sound; Stats count a poisoned call when one of these has heard of it. Where no
/// call ends for Options::deadline (600 s without one) the transport is aborted. In other
/// schedules, and where nobody knows beforehand how much is kept, the host waits several times
/// within a call. Every schedule and compressor takes such buckets; name a schedule where a job has
/// buckets of both memories. MPI gets messages through pinned memory, unless it is CUDA-aware.
/// A thread that calls keeps its current device. Let it be that of the buckets: returning to
/// another makes a context there, on a thread that has chosen none on device 0.
class AllReducer {
 public:
  /// Collective: compares the options of all ranks. `transport` is used by this object alone.
  /// Options::from_environment, the default, throws before it meets the other ranks.
  /// Buckets lie where `where` says: in host memory, or, with Place::cuda and a stream, in that of
  /// the device that is current here. A rank's own affair: those of others may lie elsewhere.
  explicit AllReducer(std::shared_ptr<Transport> transport,
                      const Options& options = Options::from_environment(), const Exec& where = {});
  /// Finishes calls in flight.
  ~AllReducer();
  AllReducer(AllReducer&&) noexcept;
  AllReducer& operator=(AllReducer&&) noexcept;

  /// Reduces a bucket, by `op` or else by Options::op. Ids must differ within a bucket, and counts
  /// of gradients never change; names and dimensions count at a bucket's first call. Elements of
  /// other types than float32, bf16 and fp16 are of one type in a bucket.
  /// Elements of 16 bits are widened, reduced as float32 and rounded once at the end, to nearest;
  /// if a sum then becomes infinite, a compressed bucket becomes NaN and what was sent is put back.
  void all_reduce(std::span<const Segment> bucket, std::optional<ReduceOp> op = {});
  /// Reduces one tensor in place. Tensors of different parameters need different ids.
  void all_reduce(const Elements& elements, std::uint64_t id, std::optional<ReduceOp> op = {});
  /// Reduces one tensor out of place: `input` is left as it is. See Segment::input.
  void all_reduce(const ConstElements& input, const Elements& output, std::uint64_t id,
                  std::optional<ReduceOp> op = {});
  /// The same, but return at once.
  Work all_reduce_async(std::span<const Segment> bucket, std::optional<ReduceOp> op = {});
  Work all_reduce_async(const Elements& elements, std::uint64_t id,
                        std::optional<ReduceOp> op = {});
  Work all_reduce_async(const ConstElements& input, const Elements& output, std::uint64_t id,
                        std::optional<ReduceOp> op = {});

  /// Returns when all calls are done, on a device too. Throws CommError where one could not be
  /// finished or is not done by the deadline, as the next call would; a UsageError of a call in
  /// flight is its Work's. Not while a call is captured.
  void synchronize();

  const Options& options() const;
  const Topology& topology() const;
  Transport& transport();  ///< not to be used while calls are in flight
  Stats last() const;      ///< of the last call that is done
  Stats totals() const;    ///< of all of them
  /// Of the calls of each bucket, in the order of first calls.
  std::vector<BucketStats> bucket_stats() const;

  /// What this rank has not sent yet of a parameter, in the memory of buckets, or, with
  /// ResidualMemory::pinned_host, in that of the host, where it is to be read behind synchronize;
  /// empty where there is nothing. Not while calls are in flight.
  std::span<const float> residual(std::uint64_t id) const;

 private:
  struct [[gnu::visibility("hidden")]] Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace winnow

#pragma GCC visibility pop
