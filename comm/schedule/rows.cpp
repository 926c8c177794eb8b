// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "comm/schedule/rows.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <winnow/error.hpp>

#include "kernels/elementwise.hpp"
#include "kernels/exec/place_memory.hpp"
#include "kernels/exec/stopwatch.hpp"
#include "kernels/half.hpp"

namespace winnow::comm {
namespace {

using compress::Header;
using compress::ReceivedRows;
using compress::RowList;
using compress::RowMessage;
using compress::RowsByOwner;
using compress::RowSums;
using kernels::Stopwatch;

constexpr std::uint64_t kRefused = std::numeric_limits<std::uint64_t>::max();

/// Messages of rows, and how many rows they carry.
struct Batch {
  std::uint64_t rows = 0;
  std::span<std::byte> bytes = {};
};

std::size_t ranks_of(const RowExchange& exchange) {
  return static_cast<std::size_t>(exchange.wire.ranks);
}

std::uint32_t self_of(const RowExchange& exchange) {
  return static_cast<std::uint32_t>(exchange.wire.rank);
}

/// Messages of rows that `owner` has.
RowMessage message_of(const RowExchange& exchange, std::uint32_t owner, Header::Kind kind,
                      std::uint16_t flags = 0) {
  Header header = exchange.header;
  header.owner = owner;
  header.flags = flags;
  return {.header = header,
          .kind = kind,
          .count = exchange.rows.count(owner),
          .width = exchange.width,
          .format = exchange.format};
}

/// Visits each other rank, the next one first.
template <class Visit>
void for_each_peer(const RowExchange& exchange, const Visit& visit) {
  for (int i = 1; i < exchange.wire.ranks; ++i) {
    visit(static_cast<std::size_t>((exchange.wire.rank + i) % exchange.wire.ranks));
  }
}

void send(const RowExchange& exchange, std::span<const std::byte> message, std::size_t peer) {
  const int to = static_cast<int>(peer);
  count_sent(exchange.wire, exchange.rails, to, message.size());
  exchange.wire.world.send(message, to);
}

[[noreturn]] void fail_by_count(std::size_t peer, std::uint64_t rows, std::uint64_t most) {
  throw CommError("rank " + std::to_string(peer) + " says that " + std::to_string(rows) +
                  " rows follow, where " + std::to_string(most) + " are the most");
}

/// Sends out[peer] to each peer, and receives a batch of each, in messages of from(peer). How many
/// rows follow goes first. Throws Refused if a rank has a refusal; `out` may be empty here then.
template <class From>
std::span<const Batch> exchange_batches(RowExchange& exchange, std::span<const Batch> out,
                                        std::string_view refusal, const From& from) {
  const Stopwatch watch(exchange.wire.stats.exchange_seconds);
  Transport& world = exchange.wire.world;
  Workspace& workspace = *exchange.exec.workspace;
  const auto in = workspace.take<Batch>(ranks_of(exchange));
  const auto mine = workspace.take<std::uint64_t>(ranks_of(exchange));
  const auto theirs = workspace.take<std::uint64_t>(ranks_of(exchange));
  for_each_peer(exchange, [&](std::size_t peer) {
    mine[peer] = refusal.empty() ? out[peer].rows : kRefused;
    send(exchange, std::as_bytes(mine.subspan(peer, 1)), peer);
    world.recv(std::as_writable_bytes(theirs.subspan(peer, 1)), static_cast<int>(peer), nullptr);
  });
  world.wait(world.start(exchange.exec), exchange.wire.deadline);
  if (!refusal.empty()) throw Refused{std::string(refusal)};
  for_each_peer(exchange, [&](std::size_t peer) {
    if (theirs[peer] == kRefused) {
      throw Refused{"rank " + std::to_string(peer) + " refuses its rows: its own error says why"};
    }
  });
  for_each_peer(exchange, [&](std::size_t peer) {
    const RowMessage message = from(static_cast<std::uint32_t>(peer));
    if (theirs[peer] > message.count) fail_by_count(peer, theirs[peer], message.count);
    in[peer] = {theirs[peer], workspace.take<std::byte>(message.bytes(theirs[peer]))};
    send(exchange, out[peer].bytes, peer);
    world.recv(in[peer].bytes, static_cast<int>(peer), nullptr);
  });
  world.wait(world.start(exchange.exec), exchange.wire.deadline);
  return in;
}

/// acc of this rank's rows: those that it is about to send, and those that it owns.
struct Acc {
  RowsByOwner rows;
  std::span<float> kept = {};  ///< a copy of the values where coding changes them
  bool finite = true;
};

/// Error feedback: the rows' values become acc.
void add_residuals(const RowExchange& exchange, Acc& acc) {
  std::span<float> values = acc.rows.values;
  for (std::uint32_t owner = 0; owner < acc.rows.lists.size(); ++owner) {
    for (const std::uint32_t local : acc.rows.lists[owner].local) {
      const auto residual = exchange.residual_of(exchange.rows.row(owner, local));
      for (std::size_t i = 0; i < residual.size(); ++i) values[i] += exchange.decay * residual[i];
      values = values.subspan(residual.size());
    }
  }
  acc.kept = exchange.exec.workspace->take<float>(acc.rows.values.size());
  std::ranges::copy(acc.rows.values, acc.kept.begin());
  acc.finite = std::ranges::all_of(acc.kept, [](float value) { return std::isfinite(value); });
}

/// Rounds what this rank adds itself as what it sends: the sums of rows that it repeats.
void round_as_travelling(const RowExchange& exchange, Acc& acc) {
  const ElementType type = exchange.format.type;
  if (type == ElementType::float32) return;
  const Workspace::Scope scope(*exchange.exec.workspace);
  const auto halves = exchange.exec.workspace->take<std::uint16_t>(acc.rows.values.size());
  kernels::narrow(exchange.exec, type, acc.rows.values, halves);
  kernels::widen(exchange.exec, type, halves, acc.rows.values);
}

/// Visits the residual of each of this rank's rows, and what lies in `values` for it.
template <class Visit>
void for_each_residual(const RowExchange& exchange, const Acc& acc, std::span<const float> values,
                       const Visit& visit) {
  for (std::uint32_t owner = 0; owner < acc.rows.lists.size(); ++owner) {
    for (const std::uint32_t local : acc.rows.lists[owner].local) {
      visit(exchange.residual_of(exchange.rows.row(owner, local)), values.first(exchange.width));
      values = values.subspan(exchange.width);
    }
  }
}

/// residual = acc where that is finite: after a failure, or if anything is not finite.
void restore(const RowExchange& exchange, const Acc& acc) noexcept {
  for_each_residual(exchange, acc, acc.kept,
                    [](std::span<float> residual, std::span<const float> value) {
                      for (std::size_t i = 0; i < residual.size(); ++i) {
                        if (std::isfinite(value[i])) residual[i] = value[i];
                      }
                    });
}

/// residual = what codings have missed: of rows that other ranks own, and of the sums.
void keep_remainders(const RowExchange& exchange, const Acc& acc, const RowSums& sums) {
  for_each_residual(exchange, acc, acc.rows.values,
                    [](std::span<float> residual, std::span<const float> rest) {
                      std::ranges::copy(rest, residual.begin());
                    });
  std::span<const float> rest = sums.values;
  for (const std::uint32_t local : sums.local) {
    const auto residual = exchange.residual_of(exchange.rows.row(self_of(exchange), local));
    std::ranges::copy(rest.first(exchange.width), residual.begin());
    rest = rest.subspan(exchange.width);
  }
}

/// The messages for each owner but this rank.
std::span<const Batch> encode(const RowExchange& exchange, const Acc& acc) {
  const Stopwatch watch(exchange.wire.stats.encode_seconds);
  Workspace& workspace = *exchange.exec.workspace;
  const auto out = workspace.take<Batch>(ranks_of(exchange));
  std::span<float> values = acc.rows.values;
  for (std::uint32_t owner = 0; owner < out.size(); ++owner) {
    const RowList& list = acc.rows.lists[owner];
    const auto own_values = values.first(list.values.size());
    values = values.subspan(own_values.size());
    if (owner == self_of(exchange)) continue;
    const RowMessage message =
        message_of(exchange, owner, Header::Kind::contribution, acc.finite ? 0 : Header::kPoison);
    out[owner] = {list.local.size(), workspace.take<std::byte>(message.bytes(list.local.size()))};
    if (!acc.finite) std::ranges::fill(own_values, 0.0F);
    kernels::RandomKey random = exchange.random;
    random.stage = owner;
    compress::encode_rows(exchange.exec, message, list.local, own_values, random, out[owner].bytes);
  }
  return out;
}

/// This rank's acc of every row that it owns and anybody has: what waits of a row that it does not
/// have itself, too.
RowList own_acc(const RowExchange& exchange, std::span<const RowList> lists) {
  const std::uint32_t self = self_of(exchange);
  const RowSums all = compress::add_rows(exchange.exec, lists, exchange.width);
  const RowList& mine = lists[self];
  std::size_t next = 0;
  for (std::size_t i = 0; i < all.local.size(); ++i) {
    const auto acc = all.values.subspan(i * exchange.width, exchange.width);
    if (next < mine.local.size() && mine.local[next] == all.local[i]) {
      std::ranges::copy(mine.values.subspan(next++ * exchange.width, exchange.width), acc.begin());
      continue;
    }
    const auto residual = exchange.residual_of(exchange.rows.row(self, all.local[i]));
    std::ranges::transform(residual, acc.begin(),
                           [&](float value) { return exchange.decay * value; });
  }
  return {all.local, all.values};
}

/// The sums of the rows that this rank owns, in rank order.
RowSums add(const RowExchange& exchange, const Acc& acc, std::span<const Batch> in,
            std::uint16_t& flags) {
  const Stopwatch watch(exchange.wire.stats.add_seconds);
  const std::uint32_t self = self_of(exchange);
  const RowMessage message = message_of(exchange, self, Header::Kind::contribution);
  const auto lists = exchange.exec.workspace->take<RowList>(ranks_of(exchange));
  for (std::size_t rank = 0; rank < lists.size(); ++rank) {
    if (rank == self) {
      lists[rank] = acc.rows.lists[self];
      continue;
    }
    const ReceivedRows received = compress::decode_rows(exchange.exec, message, in[rank].rows,
                                                        static_cast<int>(rank), in[rank].bytes);
    flags |= received.flags;
    lists[rank] = received.list;
  }
  if (exchange.format.is_lossy) lists[self] = own_acc(exchange, lists);
  return compress::add_rows(exchange.exec, lists, exchange.width);
}

/// The sums of every owner, by row, in the caller's type.
void deliver(const RowExchange& exchange, std::span<const ReceivedRows> owners, RowMemory& sums) {
  const Stopwatch watch(exchange.wire.stats.add_seconds);
  const ElementType type = exchange.format.type;
  const std::size_t row_bytes = exchange.width * bytes_of(type);
  sums.rows = 0;
  for (const ReceivedRows& owner : owners) sums.rows += owner.list.local.size();
  if (sums.ids.size() < sums.rows) sums.ids.resize(sums.rows);
  if (sums.values.size() < sums.rows * row_bytes) sums.values.resize(sums.rows * row_bytes);
  const auto scaled = exchange.exec.workspace->take<float>(exchange.width);
  std::size_t next = 0;
  const auto size = [&](std::size_t owner) { return owners[owner].list.local.size(); };
  const auto row = [&](std::size_t owner, std::size_t i) {
    return exchange.rows.row(static_cast<std::uint32_t>(owner), owners[owner].list.local[i]);
  };
  compress::merge_lists(
      exchange.exec, owners.size(), size, row, [&](std::size_t owner, std::size_t i) {
        sums.ids[next] = row(owner, i);
        const auto out = std::span(sums.values).subspan(next++ * row_bytes, row_bytes);
        if (!exchange.format.is_lossy) {
          std::ranges::copy(owners[owner].value_part.subspan(i * row_bytes, row_bytes),
                            out.begin());
          return;
        }
        std::ranges::transform(
            owners[owner].list.values.subspan(i * exchange.width, exchange.width), scaled.begin(),
            [&](float value) { return value * exchange.factor; });
        if (type == ElementType::float32) {
          std::ranges::copy(std::as_bytes(scaled), out.begin());
        } else {
          auto* const halves = reinterpret_cast<std::uint16_t*>(out.data());
          kernels::narrow(exchange.exec, type, scaled, {halves, exchange.width});
        }
      });
}

/// Every element of the sums = NaN.
void spoil(const RowExchange& exchange, RowMemory& sums) {
  const std::size_t elements = sums.rows * exchange.width;
  kernels::fill(exchange.exec, {sums.values.data(), elements, exchange.format.type},
                std::numeric_limits<float>::quiet_NaN());
}

/// Sends the sums that this rank owns to all, and delivers those of all owners. Returns the flags
/// of all of them.
std::uint16_t share(RowExchange& exchange, const RowSums& own, std::uint16_t flags,
                    RowMemory& sums) {
  Workspace& workspace = *exchange.exec.workspace;
  const std::uint32_t self = self_of(exchange);
  const auto from = [&](std::uint32_t owner) {
    return message_of(exchange, owner, Header::Kind::sum, owner == self ? flags : std::uint16_t{0});
  };
  const RowMessage message = from(self);
  const std::uint64_t count = own.local.size();
  const Batch mine{count, workspace.take<std::byte>(message.bytes(count))};
  {
    const Stopwatch watch(exchange.wire.stats.encode_seconds);
    kernels::RandomKey random = exchange.random;
    random.stage = exchange.rows.owners();
    compress::encode_rows(exchange.exec, message, own.local, own.values, random, mine.bytes);
  }
  const auto out = workspace.take<Batch>(ranks_of(exchange));
  std::ranges::fill(out, mine);
  const auto in = exchange_batches(exchange, out, {}, from);
  const auto owners = workspace.take<ReceivedRows>(ranks_of(exchange));
  for (std::uint32_t owner = 0; owner < owners.size(); ++owner) {
    const Batch& batch = owner == self ? mine : in[owner];
    owners[owner] = compress::decode_rows(exchange.exec, from(owner), batch.rows,
                                          static_cast<int>(owner), batch.bytes);
    flags |= owners[owner].flags;
  }
  deliver(exchange, owners, sums);
  return flags;
}

}  // namespace

bool sum_rows(RowExchange& exchange, const RowInput& input, RowMemory& sums) {
  Acc acc;
  if (input.refusal.empty()) {
    const Stopwatch watch(exchange.wire.stats.select_seconds);
    acc.rows = compress::share_out_rows(exchange.exec, input.ids, input.values, exchange.width,
                                        exchange.rows);
    if (exchange.format.is_lossy) {
      add_residuals(exchange, acc);
    } else {
      round_as_travelling(exchange, acc);
    }
    exchange.wire.stats.kept += acc.rows.values.size();
  }
  const std::span<const Batch> out =
      input.refusal.empty() ? encode(exchange, acc) : std::span<const Batch>();
  try {
    const auto to_self = [&](std::uint32_t) {
      return message_of(exchange, self_of(exchange), Header::Kind::contribution);
    };
    const auto in = exchange_batches(exchange, out, input.refusal, to_self);
    std::uint16_t flags = acc.finite ? 0 : Header::kPoison;
    RowSums own = add(exchange, acc, in, flags);
    if (exchange.format.is_lossy) {
      const auto is_finite = [](float value) { return std::isfinite(value); };
      if (flags == 0 && !std::ranges::all_of(own.values, is_finite)) flags = Header::kPoison;
      if (flags != 0) std::ranges::fill(own.values, 0.0F);
    } else if (exchange.factor != 1) {
      kernels::scale(exchange.exec, own.values, exchange.factor);
    }
    flags = share(exchange, own, flags, sums);
    if (!exchange.format.is_lossy) return true;
    if (flags != 0) {
      restore(exchange, acc);
      spoil(exchange, sums);
      return false;
    }
    keep_remainders(exchange, acc, own);
    return true;
  } catch (const Refused&) {
    throw;
  } catch (...) {
    restore(exchange, acc);
    throw;
  }
}

}  // namespace winnow::comm
