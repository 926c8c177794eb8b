// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "winnow/allreducer.hpp"

#include <algorithm>
#include <cmath>
#include <exception>
#include <functional>
#include <iostream>
#include <mutex>
#include <utility>
#include <winnow/error.hpp>

#include "comm/plan/agreement.hpp"
#include "comm/plan/checked_options.hpp"
#include "comm/plan/differences.hpp"
#include "comm/plan/hash.hpp"
#include "comm/plan/probe.hpp"
#include "comm/reducer/allreducer_impl.hpp"
#include "comm/reducer/stats_table.hpp"
#include "comm/transport/abort_on_error.hpp"
#include "comm/transport/failure.hpp"
#include "comm/transport/memory.hpp"
#include "comm/transport/one_of_many.hpp"
#include "kernels/elementwise.hpp"
#include "kernels/exec/device_scope.hpp"
#include "kernels/exec/keep_for_ever.hpp"
#include "kernels/exec/place_memory.hpp"
#include "kernels/exec/uncaught.hpp"
#include "kernels/memory_ops.hpp"
#include "topology/processors.hpp"
#include "topology/words.hpp"

namespace winnow {
namespace {

using compress::Header;

/// All options that must be equal on all ranks, as text.
std::string common_text(Options options) {
  options.threads = options.stats = options.debug = 0;
  options.residual_memory = ResidualMemory::device;
  return options.to_string();
}

/// What a rank tells the others of where it runs.
struct Seat {
  std::int64_t node;
  std::uint64_t cores, quota;  // equal on ranks that share them
  std::int64_t place;
};

std::vector<Seat> exchange_seats(Transport& world, Place place, const Processors& mine,
                                 Deadline deadline) {
  const Seat seat{.node = world.node(),
                  .cores = comm::Hash().add(mine.cores_id).value(),
                  .quota = comm::Hash().add(mine.quota_id).value(),
                  .place = static_cast<std::int64_t>(place)};
  std::vector<Seat> seats(static_cast<std::size_t>(world.size()));
  world.all_gather({}, std::as_bytes(std::span(&seat, 1)), std::as_writable_bytes(std::span(seats)),
                   deadline);
  return seats;
}

Topology topology_of(std::span<const Seat> seats) {
  std::vector<int> nodes;
  for (const Seat& seat : seats) nodes.push_back(static_cast<int>(seat.node));
  return Topology::from_nodes(nodes);
}

int default_threads(const Processors& mine, std::span<const Seat> seats, int rank) {
  const Seat& seat = seats[static_cast<std::size_t>(rank)];
  const auto sharing = [&](auto what) {
    return static_cast<int>(std::ranges::count(seats, seat.*what, what));
  };
  return mine.threads(sharing(&Seat::cores), sharing(&Seat::quota));
}

void expect_memory(const void* data, std::uint64_t count, std::size_t unit, const char* what) {
  const std::string wrong = comm::memory_error(data, count, unit);
  WINNOW_EXPECTS(wrong.empty(), std::string(what).append(wrong));
}

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
  expect_memory(bucket.data(), bucket.size(), sizeof(Segment), "the bucket");
}

}  // namespace

AllReducer::Impl::Impl(std::shared_ptr<Transport> world, const Options& given, const Exec& where,
                       std::string refusal)
    : context(std::move(world), where),
      transport(&context.world()),
      exec(context.exec()),
      options(given),
      topology(Topology::uniform(1, 1)),
      one_of_many(dynamic_cast<const comm::OneOfMany*>(context.transport().get()) != nullptr) {
  const std::lock_guard lock(context.moving());
  // A rank with wrong options still meets the others, so that all of them learn of it.
  Header mine;
  try {
    for (const std::string& why : {refusal, context.refusal()}) {
      WINNOW_EXPECTS(why.empty(), why);
    }
    options = comm::checked(given);
    preconditioner = compress::Preconditioner(options.precondition);
    compressor = compress::make_compressor(options.compressor, options.seed);
    for (unsigned stage = 0; stage <= compressor->stages(); ++stage) {
      stages.push_back(compressor->at_stage(stage));
    }
    WINNOW_EXPECTS(options.checksum != Checksum::all || context.transport()->takes(Place::cpu),
                   "checksum=all needs a transport that takes host memory: NCCL's does not");
    if (exec.place == Place::cuda) {
      completions = std::make_shared<comm::CompletionTracker>(exec, patience());
      if (options.stats > 0) clock = std::make_unique<kernels::StreamClock>(exec);
    }
    const std::string common = common_text(options);
    digest = comm::Hash().add(common).value();
    common_options = comm::abridged_options(common);
    log = std::make_unique<comm::DebugLog>(options.debug, transport->rank(), std::cerr);
    queue = std::make_shared<comm::CallQueue>(
        transport->allows_threads(),
        [this](std::span<const Segment> segments, ReduceOp chosen, kernels::StreamMark& mark) {
          all_reduce(segments, chosen, &mark);
        },
        completions, context.device());
    context.finish_by([queue = queue] { queue->drain(); });
  } catch (const std::exception& error) {
    refusal = comm::text_of(error);
    mine.flags = Header::kRefused;
    options = {};
  }
  mine.digest = digest;
  try {
    const std::string refused =
        comm::agree(context.control(), context.host(), mine,
                    {.refusal = refusal, .options = common_options}, deadline());
    if (!refused.empty()) fail_usage(refused);
    if (options.checksum == Checksum::all) {
      context.check_all();
      transport = &context.world();
    }
    const Processors processors = Processors::of_this_process();
    const auto seats = exchange_seats(context.control(), exec.place, processors, deadline());
    topology = topology_of(seats);
    // Those on a device cannot overlap what those on hosts can, and messages must match.
    const auto elsewhere = [&](const Seat& seat) { return seat.place != seats.front().place; };
    places_differ = std::ranges::any_of(seats, elsewhere);
    // Messages of hosts are staged in memory that is not registered.
    if (!places_differ) context.register_scratch();
    rails = std::make_unique<comm::Rails>(*transport, topology);
    context.set_threads(options.threads > 0
                            ? options.threads
                            : default_threads(processors, seats, transport->rank()));
    links = find_links();
  } catch (const UsageError&) {  // on every rank
    throw;
  } catch (const std::exception& error) {
    comm::abort_by(*transport, error);
    if (comm::kind_of(error) == FailureKind::usage) fail_usage(error.what());
    throw;
  }
}

/// Measures links only if a choice depends on them, or if the options ask for it. The options then
/// hold the result, so that a run's predictions can be repeated.
LinkModel AllReducer::Impl::find_links() {
  const bool asked = options.links == Options::kMeasured;
  if (asked) options.links.clear();
  links_given = !options.links.empty();
  if (links_given) return LinkModel::parse(options.links);
  const bool by_time = options.schedule == "auto" || options.schedule == "two_level" || asked;
  if (!by_time || compressor->lossless() || !options.enable || transport->size() == 1) return {};
  const LinkModel measured =
      comm::probe_links({*transport, exec, comm::residual_memory(options, exec.place)},
                        {context.control(), context.host()}, topology, deadline());
  options.links = measured.to_string('+');
  return measured;
}

AllReducer::Impl::~Impl() {
  queue->close();
  watchdog = {};
  end_calls();
  if (options.stats == 0 || transport->rank() != 0) return;
  try {
    comm::write_stats_table(std::cerr, transport->size(), options, book.buckets(), book.totals());
  } catch (...) {
    // There is no memory for a table.
  }
}

/// In a child of a fork the threads to be joined are not there, and the transport is the parent's.
void AllReducer::End::operator()(Impl* impl) const noexcept {
  if (!impl->queue->forked()) {
    delete impl;
  } else {
    kernels::keep_for_ever(impl);
  }
}

/// Beside Errors, of which the other ranks know, there may be no memory: they learn that, too.
AllReducer::Impl* AllReducer::Impl::make(const std::shared_ptr<Transport>& world,
                                         const Options& given, const Exec& where,
                                         std::string refusal) {
  try {
    if (world != nullptr) kernels::note_rank(world->rank());
    return new Impl(world, given, where, std::move(refusal));
  } catch (const Error&) {
    throw;
  } catch (const std::exception& error) {
    world->abort(error.what());
    throw CommError(error.what());
  }
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
    impl().all_reduce(bucket, op.value_or(impl().options.op), nullptr);
  } else {
    all_reduce_async(bucket, op).wait();
  }
}

Work AllReducer::all_reduce_async(std::span<const Segment> bucket, std::optional<ReduceOp> op) {
  expect_bucket(bucket);
  const ReduceOp chosen = op.value_or(impl().options.op);
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
  impl().queue->drain();
  impl().all_reduce(std::span(&segment, 1), op.value_or(impl().options.op), nullptr, &output);
}

void AllReducer::forget(std::span<const Segment> bucket, std::optional<ReduceOp> op) {
  expect_bucket(bucket);
  const ReduceOp chosen = op.value_or(impl().options.op);
  WINNOW_EXPECTS(chosen <= ReduceOp::product,
                 "operation " + std::to_string(static_cast<int>(chosen)) + " is none of ReduceOp");
  impl().synchronize();
  const std::uint64_t id = impl().id_of(bucket, chosen);
  const auto known = impl().seen.find(id);
  if (known != impl().seen.end() && !known->second.captured) impl().forget(id);
}

void AllReducer::synchronize() {
  impl().synchronize();
  impl().queue->rethrow_detached();
}

const Options& AllReducer::options() const {
  return impl().options;
}
const Topology& AllReducer::topology() const {
  return impl().topology;
}
Transport& AllReducer::transport() {
  return *impl().context.transport();
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
  const std::uint64_t mine = impl().book.totals().calls;
  std::vector<std::uint64_t> all(static_cast<std::size_t>(survivors.size()));
  survivors.all_gather({}, std::as_bytes(std::span(&mine, 1)),
                       std::as_writable_bytes(std::span(all)), deadline);
  return all;
}

std::span<const float> AllReducer::residual(std::uint64_t id) const {
  const auto known = impl().parameters.find(id);
  if (known == impl().parameters.end()) return {};
  return known->second.residual.span();
}

void AllReducer::Impl::look_ahead(std::uint64_t id, std::span<const float> weights,
                                  std::span<float> ahead, float share) {
  expect_idle("look_ahead");
  const std::lock_guard lock(context.moving());
  WINNOW_EXPECTS(std::isfinite(share) && share >= 0,
                 "the share of a residual is a number from 0 on, not " + number_text(share));
  WINNOW_EXPECTS(weights.size() == ahead.size(),
                 "look_ahead has " + std::to_string(weights.size()) + " weights and room for " +
                     std::to_string(ahead.size()));
  expect_memory(weights.data(), weights.size(), sizeof(float), "look_ahead: weights");
  expect_memory(ahead.data(), ahead.size(), sizeof(float), "look_ahead: the room for the result");
  const std::less_equal before;  // a total order, also of pointers into different arrays
  WINNOW_EXPECTS(weights.data() == ahead.data() ||
                     before(weights.data() + weights.size(), ahead.data()) ||
                     before(ahead.data() + ahead.size(), weights.data()),
                 "look_ahead needs weights and result apart, or the same memory for both");
  const kernels::DeviceScope scope(context.device());
  WINNOW_EXPECTS(kernels::is_within_reach(exec.place, weights.data()) &&
                     kernels::is_within_reach(exec.place, ahead.data()),
                 "look_ahead needs weights and result in the memory of this AllReducer's device");
  const auto known = parameters.find(id);
  WINNOW_EXPECTS(known == parameters.end() || known->second.count == weights.size(),
                 compress::label_of(id, known->second.name) + " has " +
                     std::to_string(known->second.count) + " elements, not " +
                     std::to_string(weights.size()));

  if (share != 0 && known != parameters.end() && !known->second.residual.empty() &&
      std::ranges::any_of(known->second.pieces, &compress::PieceState::dirty)) {
    kernels::look_ahead(exec, weights, known->second.residual.span(), share, ahead);
  } else if (weights.data() != ahead.data()) {
    kernels::copy(exec, ahead, weights);
  }
}

void AllReducer::look_ahead(std::uint64_t id, std::span<const float> weights,
                            std::span<float> ahead, float share) const {
  impl().look_ahead(id, weights, ahead, share);
}

float AllReducer::look_ahead_share(float momentum, std::optional<ReduceOp> op) const {
  WINNOW_EXPECTS(momentum >= 0 && momentum < 1,
                 "a momentum lies in [0, 1), unlike " + number_text(momentum));
  const ReduceOp chosen = op.value_or(impl().options.op);
  WINNOW_EXPECTS(chosen == ReduceOp::sum || chosen == ReduceOp::average,
                 "only sums and averages leave residuals");
  const auto ranks = static_cast<double>(impl().transport->size());
  const double of_average = 1 / (2 * std::sqrt(std::max(ranks, 4.0)));
  const double of_result = chosen == ReduceOp::average ? of_average : of_average * ranks;
  return static_cast<float>(of_result / (1 - static_cast<double>(momentum)));
}

}  // namespace winnow
