// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
// The public interface: what each of its functions does, and under which lock.
#include "winnow/allreducer.hpp"

#include <algorithm>
#include <cmath>
#include <exception>
#include <iostream>
#include <mutex>
#include <utility>
#include <winnow/error.hpp>

#include "comm/call/impl.hpp"
#include "comm/call/plain_all_reduce.hpp"
#include "comm/call/reduce_scatter.hpp"
#include "comm/call/row_sum.hpp"
#include "comm/stats/table.hpp"
#include "comm/transport/failure.hpp"
#include "comm/transport/gather_values.hpp"
#include "comm/transport/memory.hpp"
#include "kernels/exec/device_scope.hpp"
#include "kernels/exec/float_mode.hpp"
#include "kernels/exec/keep_for_ever.hpp"
#include "kernels/exec/place_memory.hpp"
#include "kernels/exec/uncaught.hpp"
#include "topology/words.hpp"

namespace winnow {
namespace {

/// An input without elements is one of another size than the output's, not none.
Segment out_of_place(const ConstElements& input, const Elements& output, std::uint64_t id) {
  static constexpr std::byte kSomewhere{};
  const void* const data = input.size() == 0 ? &kSomewhere : input.data();
  return {.elements = output, .id = id, .input = {data, input.size(), input.type()}};
}

Options environment_of(const std::shared_ptr<Transport>& transport) {
  try {
    return Options::from_environment();
  } catch (const UsageError& error) {
    AllReducer::refuse(transport, error.what());
  }
}

void expect_bucket(std::span<const Segment> bucket) {
  const std::string wrong = comm::memory_error(bucket.data(), bucket.size(), sizeof(Segment));
  WINNOW_EXPECTS(wrong.empty(), std::string("the bucket").append(wrong));
}

}  // namespace

AllReducer::Impl::Impl(const std::shared_ptr<comm::Setup>& made)
    : setup(made),
      log(setup->options.debug, setup->transport().rank(), std::cerr),
      health(*setup, log),
      parameters(*setup),
      device_calls(*setup, health, parameters, book),
      queue(std::make_shared<Work::Queue>(
          setup->transport().allows_threads(),
          [this](std::span<const Segment> segments, ReduceOp op, kernels::StreamMark& mark) {
            all_reduce(segments, op, &mark);
          },
          device_calls.completions(), setup->context.device())),
      plans(*setup, health, parameters, device_calls, book, log, memory, *queue) {
  setup->context.finish_by([queue = queue] { queue->drain(); });
}

/// The other ranks know of Errors. They also learn it if this rank has no memory left.
AllReducer::Impl* AllReducer::Impl::make(const std::shared_ptr<Transport>& transport,
                                         const Options& given, const Exec& where,
                                         std::string refusal) {
  try {
    if (transport != nullptr) kernels::note_rank(transport->rank());
    const auto setup = std::make_shared<comm::Setup>(transport, where);
    std::unique_ptr<Impl> impl;
    const std::lock_guard lock(setup->context.moving());
    setup->meet(given, std::move(refusal), [&] { impl = std::make_unique<Impl>(setup); });
    return impl.release();
  } catch (const Error&) {
    throw;
  } catch (const std::exception& error) {
    transport->abort(error.what());
    throw CommError(error.what());
  }
}

void AllReducer::Impl::close() noexcept {
  queue->close();
  device_calls.close();
  if (setup->options.stats == 0 || setup->transport().rank() != 0) return;
  try {
    comm::write_stats_table(std::cerr, setup->transport().size(), setup->options, book.buckets(),
                            book.totals());
  } catch (...) {
    // There is no memory for a table.
  }
}

void AllReducer::Impl::all_reduce(std::span<const Segment> segments, ReduceOp op,
                                  kernels::StreamMark* mark) {
  if (comm::PlainAllReduce::takes(segments, op)) {
    make_call(comm::PlainAllReduce(segments, op), mark);
  } else {
    make_call(comm::Request(segments, op), mark);
  }
}

void AllReducer::Impl::make_call(const comm::Request& request, kernels::StreamMark* mark) {
  const std::lock_guard lock(setup->context.moving());
  health.expect();
  const kernels::FloatMode mode;
  try {
    const kernels::DeviceScope scope(setup->context.device());
    const bool captured = kernels::is_captured(setup->exec());
    device_calls.poll();
    if (captured) {
      WINNOW_EXPECTS(mark == nullptr, "a call in flight cannot be captured into a CUDA graph");
      const std::string refusal = plans.refuse_capture(request);
      WINNOW_EXPECTS(refusal.empty(), refusal);
    }
    const comm::CallContext context{*setup, health, parameters, device_calls,
                                    book,   memory, plans,      *queue};
    const comm::Bucket& bucket = comm::Call(context, request).run();
    device_calls.end(bucket, book.call().clipped > 0, mark);
    log.call(device_calls.number() - 1, book.of(bucket), book.call());
    if (device_calls.has_clock()) book.forget_times();
    book.finish(bucket,
                setup->context.allocations() + parameters.residuals() + queue->allocations());
  } catch (const CudaError& error) {  // a failed device cannot put anything back
    health.fail(comm::failure_of(error));
  }
}

void AllReducer::Impl::expect_idle(const char* caller) const {
  WINNOW_EXPECTS(queue->idle(),
                 std::string(caller) + " was called while calls are in flight; wait for them");
}

/// Waits for the device with a deadline, and learns the outcome of the last calls.
void AllReducer::Impl::synchronize() {
  queue->drain();
  const std::lock_guard lock(setup->context.moving());
  health.expect();
  device_calls.synchronize();
}

template <class Work>
auto AllReducer::Impl::with_state(const Work& work) {
  const std::lock_guard lock(setup->context.moving());
  const kernels::DeviceScope scope(setup->context.device());
  const kernels::FloatMode mode;
  return work();
}

/// In a child of a fork the threads to be joined are not there, and the transport is the parent's.
void AllReducer::End::operator()(Impl* impl) const noexcept {
  if (impl->queue->forked()) {
    kernels::keep_for_ever(impl);
    return;
  }
  impl->close();
  delete impl;
}

AllReducer::AllReducer(const std::shared_ptr<Transport>& transport, const Options& options,
                       const Exec& where)
    : impl_(Impl::make(transport, options, where)) {}
AllReducer::AllReducer(const std::shared_ptr<Transport>& transport)
    : AllReducer(transport, environment_of(transport)) {}
void AllReducer::refuse(const std::shared_ptr<Transport>& transport, std::string_view why) {
  const std::string text(why.empty() ? "this rank makes no AllReducer" : why);
  try {
    const std::unique_ptr<Impl, End> none(Impl::make(transport, {}, {}, text));
  } catch (const UsageError&) {
    // It says `text`, or that the transport serves another.
  }
  fail_usage(text);
}
AllReducer::~AllReducer() = default;
AllReducer::AllReducer(AllReducer&&) noexcept = default;
AllReducer& AllReducer::operator=(AllReducer&&) noexcept = default;

AllReducer::Impl& AllReducer::impl() const {
  WINNOW_EXPECTS(impl_ != nullptr, "this AllReducer was moved from: it can only be assigned to");
  return *impl_;
}

void AllReducer::all_reduce(std::span<const Segment> bucket, std::optional<ReduceOp> op) {
  expect_bucket(bucket);
  if (impl().queue->idle()) {
    impl().all_reduce(bucket, op.value_or(impl().setup->options.op), nullptr);
  } else {
    all_reduce_async(bucket, op).wait();
  }
}

Work AllReducer::all_reduce_async(std::span<const Segment> bucket, std::optional<ReduceOp> op) {
  expect_bucket(bucket);
  const ReduceOp chosen = op.value_or(impl().setup->options.op);
  if (const auto number = impl().queue->submit(bucket, chosen)) return {impl().queue, *number};
  // Without it the other ranks would wait for this call.
  impl().queue->drain();
  impl().all_reduce(bucket, chosen, nullptr);
  impl().synchronize();
  return {};
}

void AllReducer::all_reduce(const Elements& elements, std::uint64_t id,
                            std::optional<ReduceOp> op) {
  const Segment segment{.elements = elements, .id = id};
  all_reduce(std::span(&segment, 1), op);
}

Work AllReducer::all_reduce_async(const Elements& elements, std::uint64_t id,
                                  std::optional<ReduceOp> op) {
  const Segment segment{.elements = elements, .id = id};
  return all_reduce_async(std::span(&segment, 1), op);
}

void AllReducer::all_reduce(const ConstElements& input, const Elements& output, std::uint64_t id,
                            std::optional<ReduceOp> op) {
  const Segment segment = out_of_place(input, output, id);
  all_reduce(std::span(&segment, 1), op);
}

Work AllReducer::all_reduce_async(const ConstElements& input, const Elements& output,
                                  std::uint64_t id, std::optional<ReduceOp> op) {
  const Segment segment = out_of_place(input, output, id);
  return all_reduce_async(std::span(&segment, 1), op);
}

void AllReducer::reduce_scatter(const Elements& input, const Elements& output, std::uint64_t id,
                                std::optional<ReduceOp> op) {
  const Segment segment{.elements = input, .id = id};
  const comm::ReduceScatter request(segment, output, op.value_or(impl().setup->options.op),
                                    impl().setup->world);
  impl().queue->drain();
  impl().make_call(request, nullptr);
}

Rows AllReducer::all_reduce_rows(std::span<const std::uint64_t> ids, const ConstElements& rows,
                                 const RowTable& table, std::optional<ReduceOp> op) {
  const comm::RowSum request(table, ids, rows, op.value_or(impl().setup->options.op),
                             impl().setup->world, impl().row_sums);
  impl().queue->drain();
  impl().make_call(request, nullptr);
  const comm::RowMemory& sums = impl().row_sums;
  return {std::span(sums.ids).first(sums.rows),
          {sums.values.data(), sums.rows * table.width, rows.type()}};
}

void AllReducer::forget(std::span<const Segment> bucket, std::optional<ReduceOp> op) {
  expect_bucket(bucket);
  const ReduceOp chosen = op.value_or(impl().setup->options.op);
  WINNOW_EXPECTS(chosen <= ReduceOp::product,
                 "operation " + std::to_string(static_cast<int>(chosen)) + " is none of ReduceOp");
  impl().synchronize();
  impl().plans.forget(comm::Request(bucket, chosen));
}

void AllReducer::synchronize() {
  impl().synchronize();
  impl().queue->rethrow_detached();
}

const Options& AllReducer::options() const {
  return impl().setup->options;
}
const Topology& AllReducer::topology() const {
  return impl().setup->topology;
}
Transport& AllReducer::transport() {
  return *impl().setup->context.transport();
}
Stats AllReducer::last() const {
  return impl().book.last();
}
Stats AllReducer::totals() const {
  return impl().book.totals();
}
std::vector<BucketStats> AllReducer::bucket_stats() const {
  return impl().book.buckets();
}
std::vector<Stats> AllReducer::schedule_stats() const {
  return impl().book.schedules();
}

std::vector<std::uint64_t> AllReducer::finished_calls(Transport& survivors,
                                                      Deadline deadline) const {
  return comm::gather_values(survivors, impl().book.totals().calls, deadline);
}

std::span<const float> AllReducer::residual(std::uint64_t id) const {
  const comm::ParameterStates& states = impl().parameters.states();
  const auto known = states.find(id);
  if (known == states.end()) return {};
  return known->second.residual.span();
}

void AllReducer::look_ahead(std::uint64_t id, std::span<const float> weights,
                            std::span<float> ahead, float share) const {
  impl().expect_idle("look_ahead");
  impl().with_state([&] { impl().parameters.look_ahead(id, weights, ahead, share); });
}

float AllReducer::look_ahead_share(float momentum, std::optional<ReduceOp> op) const {
  WINNOW_EXPECTS(momentum >= 0 && momentum < 1,
                 "a momentum lies in [0, 1), unlike " + number_text(momentum));
  const ReduceOp chosen = op.value_or(impl().setup->options.op);
  WINNOW_EXPECTS(chosen == ReduceOp::sum || chosen == ReduceOp::average,
                 "only sums and averages leave residuals");
  const auto ranks = static_cast<double>(impl().setup->world.ranks);
  const double of_average = 1 / (2 * std::sqrt(std::max(ranks, 4.0)));
  const double of_result = chosen == ReduceOp::average ? of_average : of_average * ranks;
  return static_cast<float>(of_result / (1 - static_cast<double>(momentum)));
}

std::vector<std::byte> AllReducer::save() const {
  impl().expect_idle("save");
  impl().synchronize();
  return impl().with_state([&] { return impl().parameters.save(impl().device_calls.number()); });
}

void AllReducer::load(std::span<const std::span<const std::byte>> states) {
  WINNOW_EXPECTS(impl().queue->idle() && impl().device_calls.number() == 0 &&
                     impl().parameters.states().empty(),
                 "load comes before the first call");
  impl().with_state([&] { impl().device_calls.set_number(impl().parameters.load(states)); });
}

void AllReducer::load(std::span<const std::byte> state) {
  load(std::span(&state, 1));
}

void AllReducer::begin_step() {
  impl().expect_idle("begin_step");
  impl().with_state([&] { impl().parameters.begin_step(); });
}

void AllReducer::discard_step() {
  impl().expect_idle("discard_step");
  std::vector<std::uint64_t> all;
  for (const auto& [id, parameter] : impl().parameters.states()) all.push_back(id);
  discard_step(all);
}

void AllReducer::discard_step(std::span<const std::uint64_t> ids) {
  impl().expect_idle("discard_step");
  WINNOW_EXPECTS(impl().parameters.step_begun(), "discard_step comes after begin_step");
  impl().synchronize();
  impl().with_state([&] { impl().parameters.discard(ids); });
}

void AllReducer::scale_residuals(float factor) {
  impl().expect_idle("scale_residuals");
  WINNOW_EXPECTS(
      std::isfinite(factor) && factor > 0,
      "residuals are scaled by a number above 0, unlike the factor " + number_text(factor));
  impl().synchronize();
  impl().with_state([&] { impl().parameters.scale_residuals(factor); });
}

}  // namespace winnow
