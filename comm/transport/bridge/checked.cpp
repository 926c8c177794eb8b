// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "comm/transport/bridge/checked.hpp"

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>
#include <winnow/error.hpp>

#include "comm/transport/failure_latch.hpp"
#include "comm/transport/fifo.hpp"
#include "comm/transport/message_keys.hpp"
#include "comm/transport/message_transport.hpp"
#include "comm/transport/ticket_queue.hpp"
#include "kernels/arithmetic/checksum.hpp"
#include "kernels/exec/keep_for_ever.hpp"

namespace winnow::comm {
namespace {

/// The checksum of message `number` between two ranks. Every change of one word changes it, and
/// every two flipped bits, also of the message and the sum itself: no word has a power of two as
/// its weight.
std::uint64_t checksum_of(std::span<const std::byte> message, std::uint64_t number) {
  constexpr std::size_t kWord = sizeof(std::uint64_t);
  constexpr std::uint64_t kOdd = 0x9e3779b97f4a7c15;
  std::uint64_t sum = (number + 1) * kOdd + message.size();
  const std::size_t whole = message.size() / kWord;
  std::uint64_t word = 0;
  for (std::size_t i = 0; i < whole; ++i) {
    std::memcpy(&word, message.data() + i * kWord, kWord);
    sum += kernels::sum_of_pair(i + 1, word);
  }
  word = 0;
  if (message.size() > whole * kWord)
    std::memcpy(&word, message.data() + whole * kWord, message.size() - whole * kWord);
  return sum + kernels::sum_of_pair(whole + 1, word);
}

/// The trailer of a message.
struct Seal {
  Digest bytes{};
  std::size_t size = 0;

  std::span<const std::byte> view() const { return std::span(bytes).first(size); }
};

/// Makes the seals of messages between two ranks.
class Sealer {
 public:
  explicit Sealer(const Credentials& key) : key_(key) {}

  std::size_t seal_bytes() const {
    return key_.are_secret() ? sizeof(Digest) : sizeof(std::uint64_t);
  }
  /// The checksum of message `number` from rank `from` to the other.
  Seal seal_of(std::span<const std::byte> message, std::uint64_t number, int from) const {
    Seal seal{.size = seal_bytes()};
    if (!key_.are_secret()) {
      const std::uint64_t sum = checksum_of(message, number);
      std::memcpy(seal.bytes.data(), &sum, sizeof sum);
      return seal;
    }
    struct {
      Digest message;
      std::uint64_t number, from;
    } const proved{sha256(message), number, static_cast<std::uint64_t>(from)};
    seal.bytes = key_.prove(std::as_bytes(std::span(&proved, 1)));
    return seal;
  }

 private:
  Credentials key_;
};

/// One for each rank of a transport.
std::vector<Sealer> sealers_of(Transport& transport) {
  const auto* const keys = dynamic_cast<const MessageKeys*>(&transport);
  std::vector<Sealer> sealers;
  for (int peer = 0; peer < transport.size(); ++peer) {
    const bool has_key = keys != nullptr && peer != transport.rank();
    sealers.emplace_back(has_key ? keys->message_key(peer) : Credentials());
  }
  return sealers;
}

/// A message under way, and its seal. The transport below reads and writes them.
struct Checked {
  Message message;
  std::uint64_t number;  // of the messages between the two ranks
  Seal seal;
  std::uint64_t bytes = 0, seal_bytes = 0;  // as received
};

class CheckedTransport final : public MessageTransport {
 public:
  explicit CheckedTransport(Transport& inner)
      : inner_(inner),
        sealers_(sealers_of(inner)),
        sent_(static_cast<std::size_t>(inner.size())),
        received_(static_cast<std::size_t>(inner.size())) {
    sends_over(inner);
  }
  ~CheckedTransport() override {
    // After a failure the transport below may still use them.
    for (; !under_way_.empty(); under_way_.pop())
      kernels::keep_for_ever(under_way_.front().release());
  }

  int rank() const override { return inner_.rank(); }
  int size() const override { return inner_.size(); }
  int node() const override { return inner_.node(); }
  bool sizes_travel() const override { return inner_.sizes_travel(); }
  bool allows_threads() const override { return inner_.allows_threads(); }

  Ticket start(const Exec& exec) override {
    failure_.expect_usable();
    for (; started_ != under_way_.end(); ++started_) {
      Checked& checked = *under_way_[started_];
      const Message& message = checked.message;
      if (message.is_send)
        checked.seal =
            sealer(message).seal_of({message.data, message.bytes}, checked.number, rank());
    }
    const Ticket ticket = inner_.start(exec);
    starts_.push({.end = started_, .inner = ticket});
    return {starts_.last()};
  }
  void wait(Ticket ticket, Deadline deadline) override {
    failure_.expect_usable();
    starts_.expect_started(ticket);
    if (ticket.number <= starts_.completed()) return;
    failure_.guard<CommError>([&] { inner_.wait(starts_[ticket.number].inner, deadline); });
    check(ticket);
  }
  bool test(Ticket ticket, Deadline deadline) override {
    failure_.expect_usable();
    starts_.expect_started(ticket);
    if (ticket.number <= starts_.completed()) return true;
    const bool done = failure_.guard<CommError>(
        [&] { return inner_.test(starts_[ticket.number].inner, deadline); });
    if (!done) return false;
    check(ticket);
    return true;
  }
  void progress() override {
    failure_.guard<CommError>([&] { inner_.progress(); });
  }
  void abort(std::string_view reason, FailureKind kind) noexcept override {
    failure_.keep(aborted_here(reason, kind));
    inner_.abort(reason, kind);
  }

  void all_reduce(const Exec& exec, const Elements& elements, ReduceOp op,
                  Deadline deadline) override {
    Transport::all_reduce(exec, elements, op, deadline);
    const std::uint64_t mine = checksum_of(elements.bytes(), 0);
    results_.resize(static_cast<std::size_t>(size()));
    all_gather(exec, std::as_bytes(std::span(&mine, 1)),
               std::as_writable_bytes(std::span(results_)), deadline);
    for (std::size_t peer = 0; peer < results_.size(); ++peer) {
      if (results_[peer] != mine) {
        fail({"rank " + std::to_string(peer) + " holds another result of a dense allreduce"});
      }
    }
  }

 private:
  struct Started {
    std::uint64_t end;  // number of the message after its last
    Ticket inner;
  };

  const Sealer& sealer(const Message& message) const {
    return sealers_[static_cast<std::size_t>(message.peer)];
  }

  void enqueue(const Message& message) override {
    failure_.expect_usable();
    std::unique_ptr<Checked> slot;
    if (idle_.empty()) {
      slot = std::make_unique<Checked>();
    } else {
      slot = std::move(idle_.back());
      idle_.pop_back();
    }
    const auto peer = static_cast<std::size_t>(message.peer);
    *slot = {.message = message,
             .number = (message.is_send ? sent_ : received_)[peer]++,
             .seal = {.size = sealers_[peer].seal_bytes()}};
    under_way_.extend();
    Checked& checked = *(under_way_[under_way_.end() - 1] = std::move(slot));
    const std::span memory(message.data, message.bytes);
    if (message.is_send) {
      inner_.send(memory, message.peer);
      inner_.send(checked.seal.view(), message.peer);
    } else {
      inner_.recv(memory, message.peer, &checked.bytes);
      inner_.recv(std::span(checked.seal.bytes).first(checked.seal.size), message.peer,
                  &checked.seal_bytes);
    }
  }

  /// Checks what has arrived with starts up to this one.
  void check(Ticket ticket) {
    const std::uint64_t end = starts_[ticket.number].end;
    for (; under_way_.begin() != end; under_way_.pop()) {
      Checked& checked = *under_way_.front();
      if (!checked.message.is_send) check(checked);
      idle_.push_back(std::move(under_way_.front()));
    }
    starts_.retire(ticket.number, [](const Started&) { return true; });
  }
  void check(const Checked& checked) {
    const Message& message = checked.message;
    const std::string from = "message from rank " + std::to_string(message.peer);
    if (checked.seal_bytes != checked.seal.size) {
      fail({from + ": no checksum follows it; all ranks must set the same options",
            FailureKind::usage});
    }
    if (checked.bytes > message.bytes) fail({from + " is longer than its buffer"});
    const Seal right =
        sealer(message).seal_of({message.data, checked.bytes}, checked.number, message.peer);
    if (!std::ranges::equal(right.view(), checked.seal.view())) {
      fail(
          {from + ": its checksum is not that of its " + std::to_string(checked.bytes) + " bytes"});
    }
    if (message.message_bytes != nullptr) *message.message_bytes = checked.bytes;
  }
  [[noreturn]] void fail(const Failure& why) {
    failure_.keep(of_rank(rank(), why));
    inner_.abort(why.text, why.kind);
    failure_.fail();
  }

  Transport& inner_;
  std::vector<Sealer> sealers_;  // by rank
  FailureLatch failure_;
  std::vector<std::uint64_t> sent_, received_;  // messages, by peer
  Fifo<std::unique_ptr<Checked>> under_way_;
  std::uint64_t started_ = 0;  // number of the first message that no start has taken
  TicketQueue<Started> starts_;
  std::vector<std::unique_ptr<Checked>> idle_;
  std::vector<std::uint64_t> results_;  // by rank
};

}  // namespace

std::unique_ptr<Transport> checked(Transport& inner) {
  return std::make_unique<CheckedTransport>(inner);
}

}  // namespace winnow::comm
