// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "comm/schedule/counts.hpp"

#include <algorithm>
#include <string>
#include <winnow/error.hpp>

#include "comm/schedule/exchange.hpp"
#include "comm/transport/bridge/host_words.hpp"
#include "kernels/exec/place_memory.hpp"
#include "kernels/exec/stopwatch.hpp"
#include "kernels/memory_ops.hpp"

namespace winnow::comm {

Counts::Counts(Exchange& exchange, std::string_view unit, std::size_t room, Form form)
    : exchange_(exchange),
      unit_(unit),
      form_(form),
      words_(kernels::scratch_of(exchange.exec).take<std::uint64_t>(2 * room)),
      expected_(exchange.exec.workspace->take<Receipt>(room)),
      theirs_(exchange.exec.workspace->take<std::uint64_t>(room)),
      own_(exchange.exec.workspace->take<std::span<const std::byte>>(room)) {}

std::span<const std::byte> Counts::word_of(std::uint64_t count) {
  const auto word = std::as_writable_bytes(words_.subspan(words_.size() - ++numbers_, 1));
  kernels::store(exchange_.exec, word, std::as_bytes(std::span(&count, 1)));
  return word;
}

void Counts::send(std::span<const std::byte> word, int peer) {
  comm::send(exchange_, word, peer);
}

void Counts::receive(int peer, std::uint64_t most) {
  expected_[receipts_] = {.peer = peer, .most = most};
  exchange_.wire.world.recv(std::as_writable_bytes(words_.subspan(receipts_++, 1)), peer, nullptr);
}

void Counts::take_own(std::span<const std::byte> word, std::uint64_t most) {
  expected_[receipts_] = {.peer = exchange_.wire.rank, .most = most};
  kernels::copy(exchange_.exec, std::as_writable_bytes(words_.subspan(receipts_++, 1)), word);
}

void Counts::bring(std::span<const std::byte> list) {
  own_[lists_++] = list;
}

Ticket Counts::start() {
  const kernels::Stopwatch watch(exchange_.wire.stats.exchange_seconds);
  return exchange_.wire.world.start(exchange_.exec);
}

void Counts::finish() {
  const kernels::Stopwatch watch(exchange_.wire.stats.exchange_seconds);
  const Exec& exec = exchange_.exec;
  std::span<const std::uint64_t> words = words_.first(receipts_);
  const auto own = own_.first(lists_);
  if (kernels::reading_waits(exec) && receipts_ + lists_ > 0) {
    words = copy_to_host(exec, words);
    for (auto& list : own) list = copy_to_host(exec, list);
    await_words(exec, exchange_.wire.world, exchange_.wire.deadline);
  }
  for (std::size_t i = 0; i < receipts_; ++i) theirs_[i] = read(expected_[i], words[i]);
}

std::uint64_t Counts::read(const Receipt& receipt, std::uint64_t word) const {
  const bool is_range = form_ == Form::range;
  const std::uint64_t begin = is_range ? word & 0xffffffff : 0, end = is_range ? word >> 32 : word;
  if (end - begin <= receipt.most) return end - begin;  // far beyond where it ends before it begins
  const std::string unit(unit_);
  const std::string what =
      is_range ? "the " + unit + " from " + std::to_string(begin) + " to " + std::to_string(end)
               : std::to_string(end) + ' ' + unit;
  const auto name = [&](int rank) {
    return "rank " + std::to_string(exchange_.wire.name_of(static_cast<std::size_t>(rank)));
  };
  throw CommError(name(receipt.peer) + " says that " + what + " follow for " +
                  name(exchange_.wire.rank) + ", where " + std::to_string(receipt.most) +
                  " are the most");
}

}  // namespace winnow::comm
