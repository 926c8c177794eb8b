// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
// The checks of all transports, as somebody else's transport runs them; and that each of them can
// fail.
#include <gtest/gtest-spi.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <vector>
#include <winnow/conformance/transport.hpp>
#include <winnow/error.hpp>

#include "comm/transport/bridge/checked.hpp"
#include "tests/harness/forwarding_transport.hpp"

namespace winnow {
namespace {

using tests::ForwardingTransport;

enum class Fault : std::uint8_t {
  none,
  reverses_the_messages_of_a_start,
  loses_empty_messages,
  keeps_sizes_to_itself,
  cuts_long_messages,
  writes_past_buffers,
  says_done_too_early,
  takes_any_peer,
  takes_any_ticket,
  counts_too_few_bytes,
  swallows_deadlines,
  lives_on_after_a_failure,
  aborts_without_a_reason,
  cuts_reasons,
  knows_one_thread,
  reduces_nothing,
  reverses_gathers,
  mixes_up_slots,
  checks_no_lengths,
  sorts_subsets,
  takes_any_subset,
  duplicates_itself,
  duplicates_alone,
};

/// A sound transport, or one with a single fault.
class Faulty final : public ForwardingTransport {
 public:
  Faulty(std::shared_ptr<Transport> inner, Fault fault)
      : ForwardingTransport(std::move(inner)), fault_(fault) {}

  void send(std::span<const std::byte> message, int peer) override {
    if (has(Fault::takes_any_peer) && !is_peer(peer)) return;
    if (has(Fault::loses_empty_messages) && message.empty()) return;
    if (failed_) return;
    constexpr std::size_t kMost = std::size_t{1} << 20;
    if (has(Fault::cuts_long_messages)) message = message.first(std::min(message.size(), kMost));
    if (has(Fault::reverses_the_messages_of_a_start)) {
      sent_.push_back([=, this] { ForwardingTransport::send(message, peer); });
    } else {
      ForwardingTransport::send(message, peer);
    }
    if (has(Fault::counts_too_few_bytes) && !message.empty()) --bytes_sent_;
  }
  void recv(std::span<std::byte> buffer, int peer, std::uint64_t* message_bytes) override {
    if (has(Fault::takes_any_peer) && !is_peer(peer)) return;
    if (failed_) return;
    if (has(Fault::keeps_sizes_to_itself)) message_bytes = nullptr;
    if (has(Fault::writes_past_buffers) && buffer.size() == 99) buffer = {buffer.data(), 100};
    ForwardingTransport::recv(buffer, peer, message_bytes);
  }
  void enqueue_all_gather(std::span<std::byte> all, std::size_t message_bytes,
                          std::span<std::uint64_t> received) override {
    if (has(Fault::mixes_up_slots))
      all = all.first(message_bytes * static_cast<std::size_t>(size()));
    Transport::enqueue_all_gather(all, message_bytes, received);
  }
  Ticket start(const Exec& exec) override {
    if (failed_) return {1};
    for (; !sent_.empty(); sent_.pop_back()) sent_.back()();
    return ForwardingTransport::start(exec);
  }
  void wait(Ticket ticket, Deadline deadline) override {
    if (has(Fault::knows_one_thread) && std::this_thread::get_id() != home_)
      throw CommError("called by another thread");
    if (has(Fault::takes_any_ticket)) ticket = ForwardingTransport::start({});
    if (failed_) return;
    try {
      ForwardingTransport::wait(ticket, deadline);
    } catch (const CommError&) {
      failed_ = has(Fault::lives_on_after_a_failure);
      if (!has(Fault::swallows_deadlines)) throw;
    }
  }
  bool test(Ticket ticket, Deadline deadline) override {
    if (has(Fault::says_done_too_early)) return true;
    return ForwardingTransport::test(ticket, deadline);
  }
  void abort(std::string_view reason, FailureKind kind) noexcept override {
    if (has(Fault::aborts_without_a_reason)) reason = "";
    if (has(Fault::cuts_reasons) && reason.size() > 1000) reason = "too long";
    ForwardingTransport::abort(reason, kind);
  }
  void all_reduce(const Exec& exec, const Elements& elements, ReduceOp op,
                  Deadline deadline) override {
    if (!has(Fault::reduces_nothing)) Transport::all_reduce(exec, elements, op, deadline);
  }
  void reduce_scatter(const Exec& exec, std::span<float> elements, Deadline deadline) override {
    if (!has(Fault::reduces_nothing)) Transport::reduce_scatter(exec, elements, deadline);
  }
  void all_gather(const Exec& exec, std::span<const std::byte> mine, std::span<std::byte> all,
                  Deadline deadline) override {
    if (has(Fault::checks_no_lengths))
      all = all.first(mine.size() * static_cast<std::size_t>(size()));
    Transport::all_gather(exec, mine, all, deadline);
    if (has(Fault::reverses_gathers)) std::ranges::reverse(all);
  }
  std::unique_ptr<Transport> subset(std::span<const int> ranks) override {
    std::vector<int> members(ranks.begin(), ranks.end());
    if (has(Fault::sorts_subsets)) std::ranges::sort(members);
    if (has(Fault::takes_any_subset)) members = {rank()};
    return Transport::subset(members);
  }
  std::unique_ptr<Transport> duplicate(Deadline deadline) override {
    if (has(Fault::duplicates_itself)) return std::make_unique<ForwardingTransport>(inner());
    if (has(Fault::duplicates_alone)) return std::move(local_transports(1).front());
    return std::make_unique<Faulty>(inner()->duplicate(deadline), fault_);
  }

 private:
  bool has(Fault fault) const { return fault_ == fault; }
  bool is_peer(int peer) const { return peer >= 0 && peer < size() && peer != rank(); }

  Fault fault_;
  bool failed_ = false;
  std::thread::id home_ = std::this_thread::get_id();
  std::vector<std::function<void()>> sent_;
};

conformance::World world_with(Fault fault) {
  return {.rank_counts =
              [] {
                return std::vector{1, 3};
              },
          .run = conformance::on_threads([fault](int ranks) {
            std::vector<std::shared_ptr<Transport>> made;
            for (auto& transport : local_transports(ranks))
              made.push_back(std::make_shared<Faulty>(std::move(transport), fault));
            return made;
          })};
}

const bool kRegistered =
    conformance::register_transport("OutsideTransport", world_with(Fault::none)) &&
    conformance::register_checks("OutsideTransport", conformance::kDuplicates,
                                 world_with(Fault::none));

/// A transport that checks every byte, and what it lies over.
struct Checking {
  explicit Checking(std::unique_ptr<Transport> over)
      : inner(std::move(over)), outer(comm::checked(*inner)) {}
  std::unique_ptr<Transport> inner, outer;
};

const bool kCheckedRegistered = conformance::register_transport(
    "CheckedTransport", {.rank_counts =
                             [] {
                               return std::vector{1, 2, 3, 5};
                             },
                         .run = conformance::on_threads([](int ranks) {
                           std::vector<std::shared_ptr<Transport>> made;
                           for (auto& transport : local_transports(ranks)) {
                             const auto both = std::make_shared<Checking>(std::move(transport));
                             made.emplace_back(both, both->outer.get());
                           }
                           return made;
                         })});

/// How many expectations of a check fail, exceptions included.
int failures_of(std::string_view name, const conformance::World& world) {
  const conformance::Check* found = nullptr;
  for (const auto& check : conformance::kMessages)
    if (check.name == name) found = &check;
  for (const auto& check : conformance::kCollectives)
    if (check.name == name) found = &check;
  for (const auto& check : conformance::kDuplicates)
    if (check.name == name) found = &check;
  if (found == nullptr) return 0;
  testing::TestPartResultArray results;
  const testing::ScopedFakeTestPartResultReporter reporter(
      testing::ScopedFakeTestPartResultReporter::INTERCEPT_ALL_THREADS, &results);
  try {
    found->run(world);
  } catch (const std::exception&) {
    return results.size() + 1;
  }
  return results.size();
}

TEST(Conformance, FindsEachFault) {
  struct Case {
    Fault fault;
    const char* check;
  };
  for (const auto& [fault, check] : {
           Case{Fault::reverses_the_messages_of_a_start, "BuffersMayBeLongerThanMessages"},
           Case{Fault::reverses_the_messages_of_a_start, "ManyMessagesMayBeUnderWay"},
           Case{Fault::reverses_the_messages_of_a_start, "RandomTrafficArrives"},
           Case{Fault::loses_empty_messages, "MessagesKeepOrderSizeAndContent"},
           Case{Fault::keeps_sizes_to_itself, "MessagesKeepOrderSizeAndContent"},
           Case{Fault::cuts_long_messages, "AMessageMaySpanMegabytes"},
           Case{Fault::writes_past_buffers, "RefusesMessagesThatDoNotFitTheirBuffer"},
           Case{Fault::says_done_too_early, "TestPollsUntilAllIsDone"},
           Case{Fault::takes_any_peer, "RefusesPeersAndTicketsThatAreNot"},
           Case{Fault::takes_any_ticket, "RefusesPeersAndTicketsThatAreNot"},
           Case{Fault::counts_too_few_bytes, "CountsTheBytesItSends"},
           Case{Fault::counts_too_few_bytes, "TheRingSumsInItsDocumentedOrder"},
           Case{Fault::swallows_deadlines, "ADeadlineEndsAWaitForAMessageThatNeverComes"},
           Case{Fault::swallows_deadlines, "ADeadlineEndsAWaitForAReceiverThatNeverComes"},
           Case{Fault::lives_on_after_a_failure, "ADeadlineEndsAWaitForAReceiverThatNeverComes"},
           Case{Fault::aborts_without_a_reason, "AbortWakesPeersAndSaysWhy"},
           Case{Fault::aborts_without_a_reason, "AbortOfASubsetReachesItsRanks"},
           Case{Fault::cuts_reasons, "AbortTakesLongReasons"},
           Case{Fault::knows_one_thread, "AnyThreadMayCallIfItSaysSo"},
           Case{Fault::reduces_nothing, "ReduceScatterLeavesTheOwnChunk"},
           Case{Fault::reduces_nothing, "TheTransportsOwnSumIsClose"},
           Case{Fault::reverses_gathers, "AllGatherConcatenatesInRankOrder"},
           Case{Fault::mixes_up_slots, "AllGathersMayBeEnqueued"},
           Case{Fault::checks_no_lengths, "RefuseWrongArgumentsBeforeTheyCommunicate"},
           Case{Fault::sorts_subsets, "SubsetOfAllRanksInReverse"},
           Case{Fault::sorts_subsets, "SubsetOfASubset"},
           Case{Fault::takes_any_subset, "SubsetOfEvenAndOddRanks"},
           Case{Fault::takes_any_subset, "SubsetRefusesWhatIsNoGroupOfThisRank"},
           Case{Fault::duplicates_itself, "ADuplicateHasAnOrderOfItsOwn"},
           Case{Fault::duplicates_itself, "AFailureStaysInItsDuplicate"},
           Case{Fault::duplicates_alone, "ADuplicateHasAnOrderOfItsOwn"},
           Case{Fault::duplicates_alone, "ADuplicateNeedsAllRanks"},
       }) {
    EXPECT_GT(failures_of(check, world_with(fault)), 0)
        << check << " passes with fault " << static_cast<int>(fault);
  }
}

TEST(Conformance, LeavesOutWhatItIsToldAlone) {
  conformance::World world = world_with(Fault::none);
  world.left_out = {"AbortTakesLongReason"};
  EXPECT_THROW((void)conformance::register_transport("Misnamed", world), std::invalid_argument);
}

}  // namespace
}  // namespace winnow
