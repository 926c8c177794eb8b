// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "winnow/allreducer.hpp"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <iostream>
#include <limits>
#include <utility>

#include "comm/agreement.hpp"
#include "comm/bucket.hpp"
#include "comm/call_queue.hpp"
#include "comm/debug_log.hpp"
#include "comm/hash.hpp"
#include "comm/measure.hpp"
#include "comm/pipeline.hpp"
#include "comm/plain.hpp"
#include "comm/probe.hpp"
#include "comm/put_back.hpp"
#include "comm/shards.hpp"
#include "comm/site.hpp"
#include "comm/stats_book.hpp"
#include "comm/stats_table.hpp"
#include "comm/trial.hpp"
#include "comm/widened.hpp"
#include "compress/compressor.hpp"
#include "compress/device.hpp"
#include "compress/stopwatch.hpp"
#include "kernels/elementwise.hpp"
#include "kernels/float_mode.hpp"
#include "winnow/error.hpp"

namespace winnow {
namespace {

using comm::Bucket;
using comm::BucketPart;
using comm::Exchange;
using compress::Header;
using compress::Stopwatch;

constexpr double kDefaultDeadline = 600;  // seconds

/// What must be equal on all ranks.
std::uint64_t digest_of(Options options) {
  options.threads = options.stats = options.debug = 0;
  return comm::Hash().add(options.to_string()).value();
}

/// Cores that this process may run on, or its share of the node's, whichever are fewer: a launcher
/// that binds ranks to cores has shared them out already, one that does not has not.
int default_threads(const Topology& topology, int rank) {
  const auto online = static_cast<int>(::sysconf(_SC_NPROCESSORS_ONLN));
  cpu_set_t set;
  const bool known = ::sched_getaffinity(0, sizeof(set), &set) == 0;
  const int bound = known ? CPU_COUNT(&set) : online;
  return std::max(1, std::min(bound, online / topology.ranks_on(topology.node_of(rank))));
}

std::uint64_t count_residuals(const comm::Parameters& parameters) {
  return static_cast<std::uint64_t>(std::ranges::count_if(
      parameters, [](const auto& entry) { return !entry.second.residual.empty(); }));
}

/// Patterns are written one after another in Options::to_string, so they hold none of its marks.
void check_patterns(std::span<const std::string> patterns) {
  for (const std::string& pattern : patterns) {
    WINNOW_EXPECTS(!pattern.empty() && pattern.find_first_of(" \t\n;,") == std::string::npos,
                   "option exempt takes shell patterns without blanks, ';' and ',', not '" +
                       pattern + "'; a '?' stands for any character");
  }
}

}  // namespace

struct AllReducer::Impl {
  Impl(std::shared_ptr<Transport> world, const Options& given, const Exec& where);
  ~Impl();

  LinkModel find_links();
  void all_reduce(std::span<const Segment> segments, ReduceOp chosen);
  const Bucket& call(std::span<const Segment> segments);
  void recover(const Bucket& bucket);
  bool sums_fit(const Bucket& bucket, std::size_t first, std::size_t last_part) const;
  Bucket& find(std::span<const Segment> segments);
  Bucket& meet(std::uint64_t id, std::span<const Segment> segments);
  Bucket& next_plan(comm::Trial& trial);
  void begin(Bucket& bucket);
  bool reduce(const Bucket& bucket);
  bool run(std::size_t first, std::size_t last_part, std::uint16_t flags);
  bool sums_are_finite(std::size_t first) const;
  void put_back(float fill);
  kernels::RandomKey random_of(const compress::Part& part, std::uint16_t number) const;
  [[noreturn]] void give_up(const std::string& why);
  bool is_finite(const compress::Part& part) const;

  float factor() const {
    return op == ReduceOp::average ? 1.0F / static_cast<float>(transport->size()) : 1.0F;
  }
  /// A native collective blocks without end, so where a deadline is asked for the ring serves.
  std::uint64_t ring() const { return options.deadline > 0 ? 0 : links.ring; }
  Deadline deadline() const {
    const double seconds = options.deadline > 0 ? options.deadline : kDefaultDeadline;
    return Deadline::after(std::chrono::duration<double>(seconds));
  }

  comm::Site site;  // outlives what uses it
  Transport* transport;
  const Exec& exec;  // of buckets
  Options options;
  std::unique_ptr<compress::Compressor> compressor;
  Topology topology;
  std::unique_ptr<const comm::Rails> rails;
  LinkModel links;
  std::uint64_t digest = 0;
  std::uint64_t calls = 0;
  comm::Parameters parameters;
  std::unordered_map<std::uint64_t, Bucket> buckets;
  std::unordered_map<std::uint64_t, comm::Trial> trials;  // of those whose plan is not settled
  ReduceOp op = ReduceOp::sum;                            // of the call under way
  comm::Widened widened;                                  // its segments
  std::vector<const comm::Schedule*> schedules;  // of the call under way, one for each part
  std::vector<Exchange> exchanges;               // the same
  comm::StatsBook book;
  std::unique_ptr<comm::DebugLog> log;
  std::shared_ptr<comm::CallQueue> queue;
  std::uint64_t residuals = 0;  // allocated
  std::string broken;           // why no call is possible any more, if so
};

AllReducer::Impl::Impl(std::shared_ptr<Transport> world, const Options& given, const Exec& where)
    : site(std::move(world), where),
      transport(&site.world()),
      exec(site.exec()),
      options(given),
      topology(Topology::uniform(1, 1)) {
  // A rank whose options are wrong still meets the others, so that all of them hear of it.
  std::string refusal;
  Header mine;
  try {
    if (!site.refusal().empty()) fail_usage(site.refusal());
    check_patterns(given.exempt);
    options = Options::parse(given.to_string());
    compressor = compress::make_compressor(options.compressor);
    if (exec.place == Place::cuda) compressor = compress::on_device(std::move(compressor));
    digest = digest_of(options);
  } catch (const UsageError& error) {
    refusal = error.what();
    mine.flags = Header::kRefused;
    options = {};
  }
  mine.digest = digest;
  try {
    comm::agree(site.control(), site.host(), mine, refusal, deadline());
    topology = discover(site.control(), deadline());
    rails = std::make_unique<comm::Rails>(*transport, topology);
    site.set_threads(options.threads > 0 ? options.threads
                                         : default_threads(topology, transport->rank()));
    links = find_links();
  } catch (const UsageError&) {  // on every rank
    throw;
  } catch (const std::exception& error) {
    transport->abort(error.what());
    throw;
  }
  log = std::make_unique<comm::DebugLog>(options.debug, transport->rank(), std::cerr);
  queue = std::make_shared<comm::CallQueue>(
      transport->allows_threads(),
      [this](std::span<const Segment> segments, ReduceOp chosen) { all_reduce(segments, chosen); });
}

/// Measures them only where a choice depends on them; the options then say what was measured, so
/// that a run's predictions can be had again.
LinkModel AllReducer::Impl::find_links() {
  if (!options.links.empty()) return LinkModel::parse(options.links);
  const bool by_time = options.schedule == "auto" || options.schedule == "two_level";
  if (!by_time || compressor->lossless() || !options.enable || transport->size() == 1) return {};
  LinkModel measured =
      comm::probe_links({*transport, exec}, {site.control(), site.host()}, topology, deadline());
  const Link& slowest = topology.nodes() > 1 ? measured.inter : measured.intra;
  if (options.deadline == 0 && exec.place != Place::cuda) {
    measured.ring = comm::probe_ring(site.control(), slowest, site.host(), deadline());
  }
  options.links = measured.to_string('+');
  return measured;
}

AllReducer::Impl::~Impl() {
  queue->close();
  if (options.stats == 0 || transport->rank() != 0) return;
  try {
    comm::write_stats_table(std::cerr, transport->size(), options, book.buckets(), book.totals());
  } catch (...) {
    // No memory for a table.
  }
}

void AllReducer::Impl::all_reduce(std::span<const Segment> segments, ReduceOp chosen) {
  if (!broken.empty()) throw CommError(broken);
  const kernels::FloatMode mode;
  op = chosen;
  try {
    const kernels::PlaceScope scope = site.enter();
    const Bucket& bucket = call(segments);
    book.finish(bucket, site.allocations() + residuals);
    log->call(calls - 1, book.of(bucket), book.call());
  } catch (const CudaError& error) {  // nothing can be put back on a device that has failed
    transport->abort(error.what());
    give_up(error.what());
  }
}

/// One call: the bucket and its plan, the sums over ranks, and their way into the bucket.
const Bucket& AllReducer::Impl::call(std::span<const Segment> segments) {
  const Workspace::Scope scope(*exec.workspace), device_scope(kernels::scratch_of(exec));
  widened.view(exec, segments);
  Bucket& bucket = find(segments);
  const auto trial = trials.find(bucket.id);
  if (trial != trials.end()) kernels::wait(exec);  // for what is not of the call
  const auto start = Deadline::Clock::now();
  comm::view(bucket, widened.segments());
  begin(bucket);
  {
    const Stopwatch watch(book.call().select_seconds);
    widened.read(exec);
  }
  try {
    if (bucket.plain) {
      comm::reduce_plain({*transport, exec, deadline(), ring()}, widened.segments(), op,
                         book.call());
      const int next = (transport->rank() + 1) % transport->size();
      if (!rails->on_node(next)) book.call().network_bytes = book.call().wire_bytes;
    } else if (!reduce(bucket)) {
      recover(bucket);
      put_back(std::numeric_limits<float>::quiet_NaN());
      book.call().poisoned = 1;
    }
  } catch (const std::exception& error) {
    transport->abort(error.what());
    recover(bucket);
    put_back(0);
    widened.narrow(exec);
    give_up(error.what());
  }
  if (options.stats >= 2) comm::measure(exec, widened.segments(), bucket, book.call());
  widened.narrow(exec);
  if (trial != trials.end()) {
    kernels::wait(exec);
    trial->second.record(std::chrono::duration<double>(Deadline::Clock::now() - start).count());
  }
  return bucket;
}

/// Where a collective has worked on elements in place, but all their gradients still stand where
/// they came from, takes them from there again, to be put back.
void AllReducer::Impl::recover(const Bucket& bucket) {
  bool found = false;
  for (Exchange& exchange : exchanges) {
    const auto& segments = bucket.parts[exchange.header.part].segments;
    const bool all = std::ranges::all_of(
        segments, [&](std::size_t segment) { return widened.has_original(segment); });
    if (!exchange.in_place || !all) continue;
    exchange.in_place = false;
    found = true;
  }
  if (found) widened.read(exec);
}

/// After this nothing is as it was on all ranks, and the transport may still use what it was given.
void AllReducer::Impl::give_up(const std::string& why) {
  broken = why;
  site.abandon();
  log->broken(why);
  throw CommError(why);
}

Bucket& AllReducer::Impl::find(std::span<const Segment> segments) {
  const std::uint64_t id = comm::bucket_id(segments, op);
  if (const auto known = buckets.find(id); known != buckets.end()) return known->second;
  if (const auto trial = trials.find(id); trial != trials.end()) return next_plan(trial->second);
  return meet(id, segments);
}

/// Of a bucket whose plan is not settled; at the end of the trial the settled one.
Bucket& AllReducer::Impl::next_plan(comm::Trial& trial) {
  if (!trial.complete()) return trial.plan();
  const std::uint64_t id = trial.first().id;
  Bucket* best = &trial.first();
  try {
    best = &trial.settle(site.control(), site.host(), deadline());
  } catch (const std::exception& error) {
    transport->abort(error.what());  // so that the call which follows fails, and loses nothing
  }
  Bucket& settled = buckets.emplace(id, std::move(*best)).first->second;
  trials.erase(id);
  book.replan(settled);
  log->plan(settled, book.of(settled));
  return settled;
}

/// The first call of a bucket: plans it and compares the plan with all ranks'. Leaves no trace
/// where they disagree.
Bucket& AllReducer::Impl::meet(std::uint64_t id, std::span<const Segment> segments) {
  std::vector<std::uint64_t> fresh;
  for (const Segment& segment : widened.segments()) {
    if (!parameters.contains(segment.id)) fresh.push_back(segment.id);
  }
  const auto forget = [&] {
    for (const std::uint64_t parameter : fresh) parameters.erase(parameter);
  };
  std::string plain = comm::plain_reason(segments, op);
  std::string refusal = comm::refuse(segments, parameters, !plain.empty());
  Header mine{.digest = digest, .bucket = id, .call = calls};
  Bucket bucket, dense;
  try {
    if (refusal.empty()) refusal = comm::refuse_memory(segments, exec.place);
    if (refusal.empty()) {
      comm::World world{transport->size(),       transport->rank(), &topology, links,
                        options.trial_calls > 0, exec.place};
      world.links.ring = ring();
      bucket = plain.empty() ? comm::plan_bucket(id, widened.segments(), options, world,
                                                 *compressor, parameters)
                             : comm::plan_plain(id, widened.segments(), std::move(plain), world);
      comm::make_residuals(exec, bucket);
      mine.bucket = bucket.plan;
      mine.count = bucket.count;
      for (const BucketPart& part : bucket.parts) mine.k += part.part.most_k;
      if (bucket.close) {
        Options switched = options;
        switched.schedule = "dense";
        dense = comm::plan_bucket(id, widened.segments(), switched, world, *compressor, parameters);
        dense.reason = bucket.reason;
        if (bucket.note.empty()) dense.reason += dense.note;
      }
    }
  } catch (const std::exception& error) {
    refusal = error.what();
  }
  if (!refusal.empty()) mine.flags = Header::kRefused;
  try {
    comm::agree(site.control(), site.host(), mine, refusal, deadline());
  } catch (const UsageError&) {
    forget();
    throw;
  } catch (const std::exception& error) {
    forget();
    transport->abort(error.what());
    give_up(error.what());
  }
  residuals = count_residuals(parameters);
  book.meet(bucket, widened.segments());
  dense.number = bucket.number;
  Bucket& known =
      bucket.close
          ? trials.try_emplace(id, std::move(bucket), std::move(dense), options.trial_calls)
                .first->second.plan()
          : buckets.emplace(id, std::move(bucket)).first->second;
  log->plan(known, book.of(known));
  return known;
}

void AllReducer::Impl::begin(Bucket& bucket) {
  Stats& call = book.begin(bucket);
  exchanges.clear();
  schedules.clear();
  for (BucketPart& part : bucket.parts) {
    const Header header{.digest = digest,
                        .bucket = bucket.plan,
                        .call = calls,
                        .count = part.part.count,
                        .k = part.part.k,
                        .part = static_cast<std::uint16_t>(exchanges.size())};
    schedules.push_back(part.schedule);
    exchanges.push_back(Exchange{.world = *transport,
                                 .compressor = *compressor,
                                 .exec = exec,
                                 .deadline = deadline(),
                                 .ring = ring(),
                                 .decay = options.decay,
                                 .factor = factor(),
                                 .part = part.part,
                                 .header = header,
                                 .random = random_of(part.part, header.part),
                                 .stats = call,
                                 .rails = rails.get(),
                                 .shards = &part.shards});
  }
  ++calls;
}

/// Stages are numbered so that no two messages of a call share random numbers.
kernels::RandomKey AllReducer::Impl::random_of(const compress::Part& part,
                                               std::uint16_t number) const {
  return {.seed = options.seed,
          .call = calls,
          .rank = static_cast<std::uint32_t>(transport->rank()),
          .stage = number * (part.partition.owners() + 1)};
}

bool AllReducer::Impl::is_finite(const compress::Part& part) const {
  return std::ranges::all_of(part.pieces, [&](const compress::Piece& piece) {
    return kernels::all_finite(exec, piece.elements);
  });
}

/// Runs parts [first, last_part) through their schedules. Returns whether no rank's gradient was
/// found not finite, which all ranks know.
bool AllReducer::Impl::run(std::size_t first, std::size_t last_part, std::uint16_t flags) {
  const auto parts = std::span(exchanges).subspan(first, last_part - first);
  for (Exchange& exchange : parts) exchange.header.flags = flags;
  return comm::run_parts(std::span(schedules).subspan(first, parts.size()), parts);
}

/// Compressed parts are summed before dense ones begin, and sums that would overwrite a gradient
/// are written last, so that whatever fails can be put back. Returns false where the bucket is to
/// become NaN: what decides has the same bits on all ranks.
bool AllReducer::Impl::reduce(const Bucket& bucket) {
  // A dense collective has no header for the poison bit; where compressed parts travel with it,
  // their headers carry the bit for it.
  std::uint16_t flags = 0;
  for (std::size_t i = bucket.compressed; bucket.mixed() && i < exchanges.size(); ++i) {
    if (!is_finite(exchanges[i].part)) flags = Header::kPoison;
  }
  if (!run(0, bucket.compressed, flags)) return false;
  if (!sums_fit(bucket, 0, bucket.compressed)) return false;
  if (!run(bucket.compressed, exchanges.size(), 0)) return false;
  const Stopwatch watch(book.call().add_seconds);
  if (bucket.mixed() && !sums_are_finite(bucket.compressed)) return false;
  if (bucket.mixed() && !sums_fit(bucket, bucket.compressed, exchanges.size())) return false;
  for (std::size_t i = 0; i < exchanges.size(); ++i) {
    if (schedules[i]->write != nullptr) schedules[i]->write(exchanges[i]);
  }
  for (const Exchange& exchange : std::span(exchanges).first(bucket.compressed)) {
    compressor->keep_left(exec, exchange.part, exchange.owned);
  }
  return true;
}

/// Whether the sums of parts [first, last_part) are finite in the types that they go back to.
bool AllReducer::Impl::sums_fit(const Bucket& bucket, std::size_t first,
                                std::size_t last_part) const {
  return widened.fits(exec, bucket, std::span(exchanges).subspan(first, last_part - first));
}

/// Of the parts from `first` on.
bool AllReducer::Impl::sums_are_finite(std::size_t first) const {
  return std::ranges::all_of(std::span(exchanges).subspan(first), [&](const Exchange& exchange) {
    return kernels::all_finite(exec, exchange.sum);
  });
}

/// Ends a call that cannot be finished, or whose result is not finite.
void AllReducer::Impl::put_back(float fill) {
  for (const Exchange& exchange : exchanges) comm::put_back(exchange, fill);
  residuals = count_residuals(parameters);
}

AllReducer::AllReducer(std::shared_ptr<Transport> transport, const Options& options,
                       const Exec& where)
    : impl_(std::make_unique<Impl>(std::move(transport), options, where)) {}
AllReducer::~AllReducer() = default;
AllReducer::AllReducer(AllReducer&&) noexcept = default;
AllReducer& AllReducer::operator=(AllReducer&&) noexcept = default;

void AllReducer::all_reduce(std::span<const Segment> bucket, std::optional<ReduceOp> op) {
  if (impl_->queue->idle()) {
    impl_->all_reduce(bucket, op.value_or(impl_->options.op));
  } else {
    all_reduce_async(bucket, op).wait();
  }
}

Work AllReducer::all_reduce_async(std::span<const Segment> bucket, std::optional<ReduceOp> op) {
  return {impl_->queue, impl_->queue->submit(bucket, op.value_or(impl_->options.op))};
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
  const Segment segment{.elements = output, .id = id, .input = input};
  all_reduce(std::span(&segment, 1), op);
}

Work AllReducer::all_reduce_async(const ConstElements& input, const Elements& output,
                                  std::uint64_t id, std::optional<ReduceOp> op) {
  const Segment segment{.elements = output, .id = id, .input = input};
  return all_reduce_async(std::span(&segment, 1), op);
}

const Options& AllReducer::options() const {
  return impl_->options;
}
const Topology& AllReducer::topology() const {
  return impl_->topology;
}
Transport& AllReducer::transport() {
  return *impl_->site.transport();
}
Stats AllReducer::last() const {
  return impl_->book.last();
}
Stats AllReducer::totals() const {
  return impl_->book.totals();
}
std::vector<BucketStats> AllReducer::bucket_stats() const {
  return impl_->book.buckets();
}

std::span<const float> AllReducer::residual(std::uint64_t id) const {
  const auto known = impl_->parameters.find(id);
  if (known == impl_->parameters.end()) return {};
  return known->second.residual.span();
}

}  // namespace winnow
