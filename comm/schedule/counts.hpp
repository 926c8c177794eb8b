// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <winnow/transport.hpp>

namespace winnow::comm {

struct Exchange;

/// How long the messages are that follow: ranks exchange it, 8 bytes to each peer, where a
/// gradient decides it and sizes do not travel with messages (Transport::sizes_travel). In a
/// schedule
///   co_await exchange_counts(counts);
/// starts what was enqueued, and resumes with all counts on the host. Words lie in the memory of
/// exec.place; for those of a device the host waits once. Views of scratch that lives as long as
/// the call.
class Counts {
 public:
  enum class Form : std::uint8_t {
    number,  ///< of 64 bits
    range,   ///< 32 bits each: where a list begins and where it ends
  };
  /// `unit`: what is counted, in the text of errors. With room for so many calls of word_of, of
  /// receive and take_own, and of bring: as much whatever a gradient decides.
  Counts(Exchange& exchange, std::string_view unit, std::size_t room, Form form = Form::number);

  /// A number of the host as a word to send.
  std::span<const std::byte> word_of(std::uint64_t count);
  /// Enqueues a word to `peer`, which stays until the start is done.
  void send(std::span<const std::byte> word, int peer);
  /// Enqueues the receipt of a count that is at most `most`.
  void receive(int peer, std::uint64_t most);
  /// Adds a word of this rank to the counts, as if it had been received. Enqueues a copy.
  void take_own(std::span<const std::byte> word, std::uint64_t most);
  /// Brings a list of this rank to the host, too.
  void bring(std::span<const std::byte> list);

  Ticket start();
  /// Ends what was started. CommError for a count that is too large, and at the deadline.
  void finish();
  /// The counts, in the order in which receive and take_own were called.
  std::span<const std::uint64_t> theirs() const { return theirs_.first(receipts_); }
  /// A list of this rank, in the order of bring.
  template <class Word>
  std::span<const Word> own(std::size_t number) const {
    return {reinterpret_cast<const Word*>(own_[number].data()), own_[number].size() / sizeof(Word)};
  }

 private:
  struct Receipt {
    int peer;
    std::uint64_t most;
  };
  std::uint64_t read(const Receipt& receipt, std::uint64_t word) const;

  Exchange& exchange_;
  std::string_view unit_;
  Form form_;
  std::size_t numbers_ = 0, receipts_ = 0, lists_ = 0;
  std::span<std::uint64_t> words_;             // that come; from the end on those of the host
  std::span<Receipt> expected_;                // by number of the receipt
  std::span<std::uint64_t> theirs_;            // likewise
  std::span<std::span<const std::byte>> own_;  // by number of the list
};

/// The awaitable of a schedule that exchanges counts.
struct CountsRound {
  Counts& counts;
};
inline CountsRound exchange_counts(Counts& counts) {
  return {counts};
}

}  // namespace winnow::comm
