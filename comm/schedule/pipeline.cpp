// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "comm/schedule/pipeline.hpp"

#include <algorithm>
#include <array>
#include <variant>

#include "comm/schedule/rounds.hpp"
#include "kernels/exec/place_memory.hpp"
#include "kernels/exec/stopwatch.hpp"

namespace winnow::comm {

namespace {

constexpr std::size_t kDepth = 3;  // the most parts under way at once

/// The parts under way, the longest waiting first.
class UnderWay {
 public:
  struct Entry {
    Exchange* exchange = nullptr;
    Rounds rounds;
  };
  bool empty() const { return size_ == 0; }
  bool full(std::size_t depth) const { return size_ >= depth; }
  void push(Entry entry) { entries_[(first_ + size_++) % kDepth] = std::move(entry); }
  Entry pop() {
    --size_;
    return std::move(entries_[first_++ % kDepth]);
  }

 private:
  std::array<Entry, kDepth> entries_;
  std::size_t first_ = 0, size_ = 0;
};

void await(const Rounds& rounds, Exchange& exchange) {
  const kernels::Stopwatch watch(exchange.wire.stats.wait_seconds);
  if (exchange.course.status != nullptr) {
    exchange.wire.world.wait_on_stream(rounds.ticket(), exchange.wire.deadline);
  } else {
    exchange.wire.world.wait(rounds.ticket(), exchange.wire.deadline);
  }
}

}  // namespace

compress::Outcome outcome_of(const Exchange& exchange) {
  return {.messages = messages_of(exchange),
          .partitioned = std::holds_alternative<OwnerSums>(exchange.result.outcome),
          .factor = exchange.scaling.factor,
          .after_encode = true,
          .elements = exchange.owned.elements,
          .status = exchange.course.status};
}

bool write_outcome(Exchange& exchange) {
  if (std::holds_alternative<WholeSum>(exchange.result.outcome)) return true;
  const kernels::Stopwatch watch(exchange.wire.stats.add_seconds);
  const compress::Written written =
      exchange.compressor.write_outcome(exchange.exec, exchange.part, outcome_of(exchange));
  exchange.result.clipped = !written.fits;
  if (exchange.result.clipped) exchange.wire.stats.clipped = 1;
  return written.finite;
}

bool run_parts(std::span<const Schedule* const> schedules, std::span<Exchange> exchanges,
               bool (*write)(Exchange&)) {
  if (schedules.empty()) return true;
  if (const auto* const run = std::get_if<RunTogether>(&schedules.front()->run)) {
    Rounds rounds = (*run)(exchanges);
    while (rounds.resume()) await(rounds, exchanges.front());
    return std::ranges::none_of(exchanges,
                                [](const Exchange& exchange) { return exchange.result.poisoned; });
  }
  UnderWay under_way;
  bool finite = true;
  const auto go_on = [&](UnderWay::Entry entry) {
    if (entry.rounds.resume()) {
      entry.exchange->wire.world.progress();
      under_way.push(std::move(entry));
    } else {
      finite = !entry.exchange->result.poisoned && write(*entry.exchange) && finite;
    }
  };
  const auto depth_of = [&](std::size_t part) {
    const int ranks = exchanges[part].wire.ranks;
    return goes_alone(*schedules[part], exchanges[part], ranks) ? 1 : kDepth;
  };
  for (std::size_t next = 0;;) {
    if (next < exchanges.size() && !under_way.full(depth_of(next))) {
      Exchange& exchange = exchanges[next];
      go_on({&exchange, schedules[next]->run_part(exchange)});
      ++next;
      continue;
    }
    if (under_way.empty()) return finite;
    UnderWay::Entry entry = under_way.pop();
    await(entry.rounds, *entry.exchange);
    go_on(std::move(entry));
  }
}

}  // namespace winnow::comm
