// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
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

#pragma GCC visibility push(default)

namespace winnow {

/// One parameter's elements in a bucket: views of the caller's tensors.
struct Segment {
  Elements elements;     ///< holds the gradient, unless `input` does; receives the result
  std::uint64_t id = 0;  ///< of the parameter; stable across steps and restarts; keys the residual
  int dimensions = 0;    ///< of the tensor; 0: unknown; 1 (norms, biases): dense by default
  /// Multiplies the gradient before error feedback, after Options::precondition: with the learning
  /// rate here, what waits counts with the rate of its own step. At 0 only what waits goes out.
  /// Each rank chooses for itself; one that is not finite makes the result NaN. Only for sums and
  /// averages of gradients. Unless it is 1, or there is a precondition, costs 8 bytes an element. A
  /// CUDA graph has the rate of its capture.
  float rate = 1;
  std::string_view name = {};  ///< for Options::exempt
  /// The gradient, if it is not in `elements`; it is only read. Same type and size as `elements`,
  /// and disjoint from everything that is written. Costs one extra copy (8 bytes moved per float32
  /// element, 4 per 16-bit one, and none where those are widened). Each rank chooses for itself.
  ConstElements input = {};
  /// Travels dense in a compressed bucket, whatever the options say. For a bucket's first call, as
  /// names and dimensions are.
  bool exempt = false;
};

/// A table that a step touches in some rows, such as an embedding's weights.
struct RowTable {
  std::uint64_t id = 0;               ///< of the parameter, as Segment::id
  std::uint64_t rows = 0, width = 0;  ///< `width` elements in each row
};

/// Some rows of a table: those that are not here are zero.
struct Rows {
  std::span<const std::uint64_t> ids;  ///< which they are, each below RowTable::rows
  ConstElements values;                ///< ids.size() rows, one after another
};

/// A call in flight, made by AllReducer::all_reduce_async. The caller keeps the bucket's elements,
/// inputs and segment names alive and untouched until the call is done. The thread that made the
/// call also waits for it.
class Work {
 public:
  Work() = default;  ///< empty; counts as done
  Work(Work&& other) noexcept : queue_(std::move(other.queue_)), number_(other.number_) {}
  Work& operator=(Work&& other) noexcept;
  /// Waits, unless detached. Drops what wait would throw; but a CommError comes back with the next
  /// call.
  ~Work();

  /// Returns when the call is done, on a device too, or throws what all_reduce throws. Returns at
  /// once if called again.
  void wait();
  /// For buckets in device memory: returns when the call's work is enqueued, or throws what
  /// all_reduce throws. Whatever is enqueued on `stream` (a cudaStream_t) afterwards runs after
  /// that work. wait() may still follow. For buckets in host memory this is wait().
  void wait(void* stream);
  /// Whether the call is done; wait then returns or throws at once. If the transport does not allow
  /// Winnow its own thread, test makes progress: it runs the next call and may block.
  bool test();

  /// Has `callback` run once, when the call is done, on a device too; its argument is what wait
  /// throws, or null. Callbacks run in the order of calls, and those of one call in the order in
  /// which they were added: on the AllReducer's own thread, so later calls wait for them; or, if
  /// the transport allows none, in a thread that waits, tests or synchronizes. If the call is done,
  /// `callback` runs before on_complete returns. Call it before wait: afterwards there is no error
  /// any more. wait may return before a callback has run; synchronize and ~AllReducer do not.
  ///
  /// A callback throws nothing (std::terminate). It may drop Works, but not the AllReducer, whose
  /// calls it neither makes nor waits for: that is a UsageError. In a child of a fork it never
  /// runs. Throws std::bad_alloc; then `callback` will not run.
  void on_complete(std::function<void(std::exception_ptr)> callback);
  /// Empties the Work without waiting; the call goes on (without a thread of its own, inside later
  /// calls and waits), and its memory stays needed until it is done. A callback learns of its
  /// error. So does, of a CommError, every later call; and of the first UsageError, which only that
  /// one call has met, the next AllReducer::synchronize.
  void detach() noexcept;

 private:
  friend class AllReducer;
  class [[gnu::visibility("hidden")]] Queue;
  Work(std::shared_ptr<Queue> queue, std::uint64_t number)
      : queue_(std::move(queue)), number_(number) {}

  std::shared_ptr<Queue> queue_;
  std::uint64_t number_ = 0;
};

/// Replaces MPI_Allreduce or ncclAllReduce for gradients: sums a bucket over all ranks, sending
/// only what matters and carrying the rest as residuals into the next call. All ranks hold the same
/// bits after every call.
///
/// Sums and averages of float32, bf16 and fp16 may travel compressed. Other element types, and
/// minimum, maximum and product, work too: they travel dense and leave residuals alone, and
/// Stats::reason says so. If such a call fails, the elements read zero and only a Segment's input
/// survives.
///
/// All ranks make the same calls in the same order, with the same ids and counts, from one thread
/// at a time. Calls in flight run in the order in which they were made, whichever is waited for
/// first: on the AllReducer's own thread if Transport::allows_threads (over MPI:
/// MPI_THREAD_MULTIPLE), otherwise inside wait and test. Without a thread of its own a call moves
/// only while its rank waits in it: ranks that have calls of two AllReducers in flight and wait for
/// them in different order block each other until the deadline, whose error says so. Errors
/// (Work::wait throws those of calls in flight):
/// - UsageError, on every rank and with bucket and residuals untouched: options are wrong or differ
/// between ranks; or, at the first call of a bucket, ids, counts, types, operation or exemptions do
/// (a bucket whose memory cannot be right always counts as new), or a rank has no memory for it.
/// With Options::checksum "all" also at later calls: the ranks compare each.
/// - UsageError, on every rank, and afterwards as after a CommError: some ranks know the bucket and
/// others do not, or they call known buckets in different order. A rank to which the bucket is new
/// says what it called, and keeps bucket and residuals. Dense buckets of one size are told apart
/// only with Options::checksum "all": else they are added to each other. And it is a CommError,
/// perhaps at the deadline, in native collectives, in stream-ordered calls and where sizes do not
/// travel.
/// - CommError: the ranks cannot finish. The bucket then reads zero and its content is in the
/// residuals. Exception: the collective works in place on adjacent tensors that travel dense, so
/// their gradients are lost unless all of them have an input or 16 bits. Ranks that had finished
/// keep their result. Every later call throws CommError and touches nothing; bucket memory must
/// live until the transport is destroyed.
///
/// Buckets in device memory give the same bits with the same plan, also among ranks whose buckets
/// are in host memory. A call runs on the AllReducer's stream: after everything enqueued there when
/// it begins, and before everything enqueued once it has returned or its Work has waited.
///
/// Calls of `gather`, `shared` and `dense`, and of `balanced` and `doubling` if all ranks know
/// which positions travel (randomk, or every element), are stream-ordered over NCCL, unless the
/// compressor is threshold: they return when they are enqueued. So are those of two levels with one
/// of these, once the bucket's last call has ended. If a message was corrupt or a peer is gone, the
/// bucket reads NaN, and synchronize, Work::wait or the next call throws a CommError. Stats count a
/// poisoned call once one of these three has learnt of it. If no call ends for Options::deadline
/// (600 s if unset), the transport is aborted. From the second call of a bucket on they can be
/// captured into a CUDA graph, but for `shared`, where ranks take turns, and two levels.
///
/// With topk the host waits for the sizes of messages: in `balanced` once for each part of a
/// bucket, in `doubling` for each round in which sums of several ranks travel (of 2 ranks there is
/// none; in two levels there is one more). With threshold, and in reduce_scatter, it waits several
/// times. Every schedule and compressor takes device buckets; if a job has buckets in both
/// memories, name a schedule. MPI gets messages through pinned memory, unless it is CUDA-aware.
///
/// In a child of a fork calls throw UsageError, and destroying an AllReducer or a Work does
/// nothing: it ends no connection and frees no memory of theirs.
///
/// A calling thread keeps its current device. It should be the buckets' device: switching back to
/// another one creates a context there (on device 0 if the thread has chosen none).
class AllReducer {
 public:
  /// Collective: compares the options of all ranks. Only this object may use `transport` as long as
  /// it lives: UsageError, before the ranks meet, for a transport, or a subset of one, that serves
  /// another AllReducer or a mixed transport; see Transport::duplicate. A rank without Options,
  /// since parse has thrown, calls refuse instead, or the others wait. Throws std::bad_alloc if
  /// there is not even memory for an error; the others then get a CommError. `where` says where
  /// buckets are: host memory, or, with Place::cuda and a stream, memory of the current device.
  /// Each rank chooses for itself.
  AllReducer(const std::shared_ptr<Transport>& transport, const Options& options,
             const Exec& where = {});
  /// With Options::from_environment, whose error all ranks get.
  explicit AllReducer(const std::shared_ptr<Transport>& transport);
  /// Instead of the constructor, by a rank that cannot call it: meets the others, and all throw
  /// UsageError: this one `why`, the others its number and `why`.
  [[noreturn]] static void refuse(const std::shared_ptr<Transport>& transport,
                                  std::string_view why);
  /// Finishes calls in flight, and runs their callbacks.
  ~AllReducer();
  AllReducer(AllReducer&&) noexcept;
  AllReducer& operator=(AllReducer&&) noexcept;

  /// Reduces a bucket by `op`, or by Options::op if none is given. Ids must differ within a bucket,
  /// and a gradient's count never changes; names, dimensions and exemptions matter only at a
  /// bucket's first call. Elements other than float32, bf16 and fp16 must share one type in a
  /// bucket. 16-bit elements are reduced as float32 and rounded to nearest once at the end. A
  /// finite sum that they cannot hold becomes the largest finite element, and the rest waits in
  /// residuals; in a bucket that travels dense as a whole, where nothing waits, it becomes
  /// infinite, as in MPI.
  void all_reduce(std::span<const Segment> bucket, std::optional<ReduceOp> op = {});
  /// Reduces one tensor in place. Tensors of different parameters need different ids.
  void all_reduce(const Elements& elements, std::uint64_t id, std::optional<ReduceOp> op = {});
  /// Reduces one tensor out of place; only reads `input`. See Segment::input.
  void all_reduce(const ConstElements& input, const Elements& output, std::uint64_t id,
                  std::optional<ReduceOp> op = {});
  /// These three return at once. If the system has no memory or no thread for a call in flight,
  /// they make the call before they return, and throw what it throws.
  Work all_reduce_async(std::span<const Segment> bucket, std::optional<ReduceOp> op = {});
  Work all_reduce_async(const Elements& elements, std::uint64_t id,
                        std::optional<ReduceOp> op = {});
  Work all_reduce_async(const ConstElements& input, const Elements& output, std::uint64_t id,
                        std::optional<ReduceOp> op = {});

  /// Reduce-scatter, for gradients whose result is sharded (FSDP, ZeRO): the input of each rank is
  /// one shard for every rank, in rank order, each of output.size() elements; `output` becomes the
  /// sum or average of all ranks' shards with this rank's number. Each rank sends what the
  /// compressor keeps of every other rank's shard; error feedback carries the rest. Its own shard
  /// goes in whole, and owners add in rank order. `input` is scratch afterwards, and `output` may
  /// be this rank's shard of it; otherwise they are apart. Blocking: it waits for calls in flight.
  ///
  /// Errors are as above: after a CommError `output` reads zero, and the input is in the residual
  /// unless it travels dense. If any rank's input is not finite, `output` is NaN on every rank.
  /// UsageError, on every rank, for other operations, types other than float32, bf16 and fp16, and
  /// counts that do not fit; and for an id whose residual another kind of call has cut otherwise.
  /// It goes dense, by Transport::reduce_scatter, with schedule=dense, enable=0, below min_bytes,
  /// and if the compressor keeps everything exactly; a NaN then stays where it is. Other schedules
  /// make no difference. Residuals belong to shards: a state continues only on as many ranks as
  /// have saved it. Stats::digest differs between ranks. On a device the host waits within the
  /// call, which cannot be captured into a CUDA graph.
  void reduce_scatter(const Elements& input, const Elements& output, std::uint64_t id,
                      std::optional<ReduceOp> op = {});

  /// Sums the rows that ranks have of a table, for gradients of embeddings: each rank gives as many
  /// as it has, or none, in any order, and those that it repeats add up in the order given. Returns
  /// the rows that any rank has, in ascending order, each once, with the sum or average of those
  /// that have it: views that hold until the next all_reduce_rows, forget or load, or the end of
  /// this AllReducer. Element types are float32, bf16 and fp16, the same on all ranks.
  ///
  /// Exact unless Options::rows says otherwise: bit for bit the sum in rank order of dense tables,
  /// rounded once at the end, and a NaN stays where it is. (bf16 and fp16 rows that a rank repeats
  /// are rounded once more, before they travel.) Each row has an owner, who sums it, so no rank is
  /// busier than others whatever rows are hot: a rank sends each of its rows once, and an owner its
  /// sums to all, each with about 2 + log2(table.rows / ids.size()) bits for its number. Zen's way
  /// (Wang et al., 2023).
  ///
  /// Rows are only read, so that nothing is lost where a call fails. UsageError, on every rank and
  /// with nothing changed, for a row outside of the table, other operations or types, tables that
  /// differ between ranks, and preconditions. In host memory. Blocking: it waits for calls in
  /// flight.
  Rows all_reduce_rows(std::span<const std::uint64_t> ids, const ConstElements& rows,
                       const RowTable& table, std::optional<ReduceOp> op = {});

  /// Forgets a bucket that will not come again: its plan and its statistics, not the residuals of
  /// its parameters. A later call of it counts as its first. All ranks do so between the same
  /// calls. Waits as synchronize does; leaves alone a bucket that a CUDA graph has captured, and
  /// one that is not known. An AllReducer also forgets by itself, all ranks alike: the buckets that
  /// were called least recently, while those that it knows have more than 65536 segments and four
  /// for each parameter.
  void forget(std::span<const Segment> bucket, std::optional<ReduceOp> op = {});

  /// Returns when all calls are done, on a device too, and their callbacks have run. Like the next
  /// call, throws CommError if a call failed or missed its deadline. The UsageError of a call in
  /// flight goes to its Work, or comes here if that was detached. Not allowed during graph capture.
  void synchronize();

  const Options& options() const;
  const Topology& topology() const;
  Transport& transport();  ///< do not use while calls are in flight
  Stats last() const;      ///< of the last finished call
  Stats totals() const;    ///< of all finished calls
  /// Per bucket that is not forgotten, in the order of first calls.
  std::vector<BucketStats> bucket_stats() const;
  /// Totals of all finished calls by schedule, in the order of first plans. A bucket may have used
  /// several schedules. Leaves reason and coding empty.
  std::vector<Stats> schedule_stats() const;

  /// After a CommError: how many calls each rank of `survivors` has finished, a transport that they
  /// have made anew. Collective there. A rank that is one call ahead of another had the sums of the
  /// call that failed; the other has its gradient in the residuals.
  std::vector<std::uint64_t> finished_calls(Transport& survivors, Deadline deadline) const;

  /// A parameter's residual; empty if there is none. It lies with the buckets, or, with
  /// ResidualMemory::pinned_host, in host memory: call synchronize before reading it. Not allowed
  /// while calls are in flight.
  std::span<const float> residual(std::uint64_t id) const;

  /// This rank's state, for a checkpoint: residuals, and what else decides the bits of later calls
  /// (the number of calls, whose turn it is), but not plans. About 4 bytes for each element with a
  /// residual. Waits as synchronize does; UsageError while calls are in flight.
  std::vector<std::byte> save() const;
  /// Continues from states that a job has saved after the same call on each of its ranks. Every
  /// rank loads, before its first call. With as many ranks, `states` needs only this rank's own:
  /// later calls then give the bits that they would have given (name a schedule: "auto" may choose
  /// another one). With another number of ranks it holds the states of all old ranks, in any
  /// order: mass is conserved, so that what waited is applied once, scaled if Options::op is the
  /// average. UsageError for bytes that are no such states, damaged (states end with a CRC-64) or
  /// incomplete, or after a call. States of version 2 of their format, which had no CRC, load too.
  void load(std::span<const std::span<const std::byte>> states);
  void load(std::span<const std::byte> state);

  /// A step begins that discard_step may undo: until the next begin_step, the first call of each
  /// parameter keeps what it finds (8 bytes moved and 4 held for each element with a residual).
  /// Such calls cannot be captured into a CUDA graph. UsageError while calls are in flight.
  void begin_step();
  /// Undoes what the calls since begin_step did to the residuals, as if their gradients had never
  /// been: for a trainer that skips a step since a loss scale overflowed. All ranks do so between
  /// the same calls. The caller ignores the results of these calls. Waits as synchronize does;
  /// UsageError without begin_step, and while calls are in flight.
  void discard_step();
  /// Undoes only what the calls did to the residuals of these parameters, for a trainer that skips
  /// one of several optimizers. Ignores ids that no call has had.
  void discard_step(std::span<const std::uint64_t> ids);
  /// Multiplies all residuals of this rank, and what discard_step would bring back, by a number
  /// above 0: for gradients whose scale changes from here on, such as by a loss scale. 8 bytes an
  /// element. Waits as synchronize does; UsageError for another number, and while calls are in
  /// flight.
  void scale_residuals(float factor);

  /// Look-ahead: ahead = weights - share * residual(id), or a copy where nothing is held. Take the
  /// gradient at `ahead` and apply the sums to `weights`, which stay equal on all ranks: each rank
  /// then sees its guess of the weights that would be if nothing waited. This is what keeps
  /// training with momentum at the loss of dense sums. (The sequence whose gradients the theory of
  /// error feedback bounds: Karimireddy et al., 2019; Stich and Karimireddy, 2020.)
  ///
  /// Local, 12 bytes an element. Both spans have the parameter's count of elements, in the buckets'
  /// memory; on a device the work is enqueued on the AllReducer's stream. They are apart, or the
  /// same memory, whose weights the caller then keeps elsewhere: floats do not undo a subtraction.
  /// A residual lies where its schedule keeps it: in two levels, in the shards that this rank
  /// serves. UsageError: for a wrong share (negative or not finite), count or memory, and while
  /// calls are in flight.
  void look_ahead(std::uint64_t id, std::span<const float> weights, std::span<float> ahead,
                  float share) const;

  /// The share that served training best, under an optimizer with v = momentum * v + result,
  /// weights -= v (or Nesterov's): 1 / (2 sqrt(max(P, 4)) (1 - momentum)) for averages over P
  /// ranks, P times that for sums. (Once a residual is sent, it moves the weights by 1 / (P (1 -
  /// momentum)) of it. Less is better on few ranks, where that is far, and more on many, since what
  /// other ranks have not sent is partly the same: docs/convergence.md has the measurements.)
  /// Multiply it by the learning rate unless that is in what you reduce; pass 0 if the optimizer
  /// weights results by 1 - momentum. UsageError if momentum is not in [0, 1), or for other
  /// operations.
  float look_ahead_share(float momentum, std::optional<ReduceOp> op = {}) const;

 private:
  struct [[gnu::visibility("hidden")]] Impl;
  [[gnu::visibility("hidden")]] Impl& impl() const;
  struct End {
    [[gnu::visibility("hidden")]] void operator()(Impl* impl) const noexcept;
  };
  std::unique_ptr<Impl, End> impl_;
};

}  // namespace winnow

#pragma GCC visibility pop
