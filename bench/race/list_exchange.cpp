// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "bench/race/list_exchange.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <variant>
#include <winnow/error.hpp>

#include "compress/partial.hpp"
#include "kernels/exec/stopwatch.hpp"
#include "kernels/memory_ops.hpp"
#include "topology/link_model.hpp"

namespace winnow::bench {
namespace {

using compress::MessageView;

constexpr std::size_t kLists = 4;  // per rank, so that no round meets the previous round's list
constexpr int kSettling = 8;       // untimed rounds

void accumulate(const Exec& exec, std::span<const compress::AccumulateJob> jobs) {
  for (const compress::AccumulateJob& job : jobs) {
    const std::span<const float> list = job.spans.gradient.floats();
    const std::size_t k = job.index.size();
    kernels::copy(exec, std::as_writable_bytes(job.index), std::as_bytes(list.first(k)));
    kernels::copy(exec, job.value, list.last(k));
    *job.result = {.finite = true, .candidates = k, .passes = 0};
  }
}

// A selection made in advance: the elements of its piece are k indices, bit for bit, and then k
// values.
constexpr compress::Selection kGiven{
    .name = "given",
    .grammar = {},
    .parse = nullptr,
    .kept = [](double k, std::uint64_t) { return static_cast<std::uint64_t>(k); },
    .support = compress::Chooses{.accumulate = accumulate,
                                 .accumulate_scratch =
                                     [](const Exec&, std::span<const compress::AccumulateJob>) {
                                       return std::size_t{0};
                                     }},
};

/// Float32 values and raw32 indices.
compress::Compressor given(std::size_t k) {
  return {{.selection = &kGiven, .argument = static_cast<double>(k), .name = "given"},
          {.index = &compress::kRaw32Coding}};
}

unsigned seed_of(std::size_t lists, int rank) {
  return static_cast<unsigned>(1000 * lists) + static_cast<unsigned>(rank) + 1;
}

/// Adds the messages that a schedule ended with, in their order.
MessageView merge(const comm::Exchange& exchange) {
  const kernels::Stopwatch watch(exchange.wire.stats.add_seconds);
  const auto messages = comm::messages_of(exchange);
  MessageView sum = messages.front();
  int ranks = 1;
  for (const MessageView& next : messages.subspan(1)) {
    compress::plan_partial(exchange.part, ++ranks, exchange.compressor.codings());
    const auto header = compress::partial_header(exchange.header, exchange.part, ranks);
    const compress::Merged merged = exchange.compressor.merge(exchange.exec, header, sum, next);
    const auto* const both = std::get_if<compress::Union>(&merged);
    sum = both == nullptr
              ? std::get<MessageView>(merged)
              : exchange.compressor.finalize(exchange.exec, *both, *both->size);  // of the host
  }
  return sum;
}

}  // namespace

ListExchange::ListExchange(Rank& rank, const comm::Schedule& schedule, ListShape shape, int threads)
    : rank_(rank),
      schedule_(schedule),
      shape_(shape),
      exec_{.threads = threads, .workspace = &workspace_},
      transport_(rank.connect()) {
  for (std::size_t lists = 0; lists < kLists; ++lists) {
    const Entries entries =
        random_entries(shape.count, shape.k, seed_of(lists, rank.control->rank()));
    const auto [index, value] = entries.view();
    auto& list = lists_.emplace_back(2 * shape.k);
    std::memcpy(list.data(), index.data(), index.size_bytes());
    std::memcpy(list.data() + shape.k, value.data(), value.size_bytes());
  }
}

ListExchange::Spent ListExchange::run_once(std::size_t lists,
                                           const std::function<void(const MessageView&)>& look) {
  const Workspace::Scope scope(workspace_);
  const compress::Compressor compressor = given(shape_.k);
  compress::ParameterState parameter;
  compress::PieceState state;
  compress::Part part;
  part.pieces = {{.elements = lists_[lists % kLists],
                  .parameter = &parameter,
                  .state = &state,
                  .k = static_cast<std::uint32_t>(shape_.k)}};
  part.count = shape_.count;
  part.partition = kernels::Partition(1, part.count);
  part.k = part.most_k = shape_.k;
  part.shapes.gradients = {compress::shape_of(part.count, part.k, compressor.codings())};
  if (schedule_.plan != nullptr) {
    schedule_.plan(part, compressor, transport_->size(), transport_->rank());
  }
  Spent spent;
  comm::Exchange exchange{
      .wire = {.world = *transport_, .deadline = Deadline::never(), .stats = spent.stats},
      .compressor = compressor,
      .exec = exec_,
      .scaling = {.decay = 1, .factor = 1},
      .course = {.ring = LinkModel::kNever, .one_outcome = true},
      .part = part,
      .header = {.count = part.count, .k = part.k},
      .random = {}};
  barrier(*rank_.control);
  {
    const kernels::Stopwatch watch(spent.seconds);
    comm::Rounds rounds = schedule_.run_part(exchange);
    while (rounds.resume()) {
      const kernels::Stopwatch waiting(spent.stats.wait_seconds);
      transport_->wait(rounds.ticket(), exchange.wire.deadline);
    }
    const MessageView sum = merge(exchange);
    union_k_ = sum.header.k;
    if (look) look(sum);
  }
  return spent;
}

/// The error in the union of the first lists, or empty. Values are whole numbers, so their
/// sums have the same bits in any order.
std::string ListExchange::check() {
  std::vector<float> expected(shape_.count), found(shape_.count);
  for (int r = 0; r < transport_->size(); ++r) {
    const Entries entries = random_entries(shape_.count, shape_.k, seed_of(0, r));
    const kernels::SparseView list = entries.view();
    for (std::size_t i = 0; i < list.index.size(); ++i) expected[list.index[i]] += list.value[i];
  }
  run_once(0, [&](const MessageView& sum) {
    for (std::size_t i = 0; i < sum.term.value.size(); ++i) {
      found[sum.carries_all() ? i : sum.term.index[i]] = sum.term.value[i];
    }
  });
  const double wrong = found == expected ? 0 : 1;
  const bool any = max_over_ranks(*rank_.control, {&wrong, 1}).front() != 0;
  return any ? "the union is not the sum of the lists" : "";
}

Measured ListExchange::measure(int rounds) {
  if (std::string wrong = check(); !wrong.empty()) {
    return {.problem = std::move(wrong), .failed = true, .counters = {}};
  }
  constexpr std::size_t kTimes = 4;
  const auto count = static_cast<std::size_t>(rounds);
  std::vector<double> times(kTimes * count);
  for (int settling = 0; settling < kSettling; ++settling) run_once(0, {});
  for (std::size_t round = 0; round < count; ++round) {
    const Spent spent = run_once(round, {});
    const Stats& stats = spent.stats;
    const std::array<double, kTimes> row = {
        spent.seconds, stats.select_seconds + stats.encode_seconds,
        stats.exchange_seconds + stats.wait_seconds, stats.add_seconds};
    for (std::size_t i = 0; i < kTimes; ++i) times[i * count + round] = row[i];
  }
  times = max_over_ranks(*rank_.control, times);
  const auto middle = [&](std::size_t i) {
    const auto from = times.begin() + static_cast<std::ptrdiff_t>(i * count);
    return median({from, from + rounds});
  };
  const Spent last = run_once(0, {});
  return {.problem = {},
          .seconds = middle(0),
          .counters = {{"encode_ms", 1e3 * middle(1)},
                       {"exchange_ms", 1e3 * middle(2)},
                       {"add_ms", 1e3 * middle(3)},
                       {"wire_bytes", static_cast<double>(last.stats.wire_bytes)},
                       {"k", static_cast<double>(shape_.k)},
                       {"union_k", static_cast<double>(union_k_)}}};
}

}  // namespace winnow::bench
