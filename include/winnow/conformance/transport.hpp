// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <stdexcept>
#include <string>
#include <utility>
#include <winnow/conformance/collectives.hpp>
#include <winnow/conformance/duplicates.hpp>
#include <winnow/conformance/messages.hpp>
#include <winnow/conformance/world.hpp>

// The promises of winnow/transport.hpp, as tests that any transport can run. Header-only; needs
// GoogleTest. docs/transports.md has an example.
namespace winnow::conformance {

/// A promise of all transports.
struct Check {
  const char* name;
  void (*run)(const World& world);
};

inline constexpr std::array kMessages{
    Check{"MessagesKeepOrderSizeAndContent", messages_keep_order_size_and_content},
    Check{"BuffersMayBeLongerThanMessages", buffers_may_be_longer_than_messages},
    Check{"ManyMessagesMayBeUnderWay", many_messages_may_be_under_way},
    Check{"AMessageMaySpanMegabytes", a_message_may_span_megabytes},
    Check{"RandomTrafficArrives", random_traffic_arrives},
    Check{"WaitIgnoresLaterTickets", wait_ignores_later_tickets},
    Check{"WaitMovesEverythingThatWasStarted", wait_moves_everything_that_was_started},
    Check{"TestPollsUntilAllIsDone", test_polls_until_all_is_done},
    Check{"AnyThreadMayCallIfItSaysSo", any_thread_may_call_if_it_says_so},
    Check{"AStartWithNothingEnqueuedIsDone", a_start_with_nothing_enqueued_is_done},
    Check{"CountsTheBytesItSends", counts_the_bytes_it_sends},
    Check{"RefusesPeersAndTicketsThatAreNot", refuses_peers_and_tickets_that_are_not},
    Check{"ADeadlineEndsAWaitForAMessageThatNeverComes",
          a_deadline_ends_a_wait_for_a_message_that_never_comes},
    Check{"ADeadlineEndsAWaitForAReceiverThatNeverComes",
          a_deadline_ends_a_wait_for_a_receiver_that_never_comes},
    Check{"AbortWakesPeersAndSaysWhy", abort_wakes_peers_and_says_why},
    Check{"AbortTakesLongReasons", abort_takes_long_reasons},
    Check{"RefusesMessagesThatDoNotFitTheirBuffer", refuses_messages_that_do_not_fit_their_buffer}};

inline constexpr std::array kCollectives{
    Check{"TheRingSumsInItsDocumentedOrder", the_ring_sums_in_its_documented_order},
    Check{"ReduceScatterLeavesTheOwnChunk", reduce_scatter_leaves_the_own_chunk},
    Check{"TheTransportsOwnSumIsClose", the_transports_own_sum_is_close},
    Check{"AllGatherConcatenatesInRankOrder", all_gather_concatenates_in_rank_order},
    Check{"AllGathersMayBeEnqueued", all_gathers_may_be_enqueued},
    Check{"RefuseWrongArgumentsBeforeTheyCommunicate",
          collectives_refuse_wrong_arguments_before_they_communicate},
    Check{"ARingThatWaitsForAnAbsentRankEndsAtItsDeadline",
          a_ring_that_waits_for_an_absent_rank_ends_at_its_deadline},
    Check{"SubsetOfEvenAndOddRanks", subset_of_even_and_odd_ranks},
    Check{"SubsetOfAllRanksInReverse", subset_of_all_ranks_in_reverse},
    Check{"SubsetOfASubset", subset_of_a_subset},
    Check{"AbortOfASubsetReachesItsRanks", abort_of_a_subset_reaches_its_ranks},
    Check{"SubsetRefusesWhatIsNoGroupOfThisRank", subset_refuses_what_is_no_group_of_this_rank}};

/// The checks of transports that have duplicates.
inline constexpr std::array kDuplicates{
    Check{"ADuplicateHasAnOrderOfItsOwn", a_duplicate_has_an_order_of_its_own},
    Check{"ADuplicateOutlivesWhatItWasMadeFrom", a_duplicate_outlives_what_it_was_made_from},
    Check{"AFailureStaysInItsDuplicate", a_failure_stays_in_its_duplicate},
    Check{"ADuplicateNeedsAllRanks", a_duplicate_needs_all_ranks}};

/// Registers tests SUITE.NAME, one for each of `checks` that world.left_out does not name. Call it
/// before RUN_ALL_TESTS, or initialise a global with it. Always true. Throws
/// std::invalid_argument if left_out names a check that no list has.
template <std::size_t count>
bool register_checks(const char* suite, const std::array<Check, count>& checks,
                     const World& world) {
  class Test final : public ::testing::Test {
   public:
    Test(const Check& check, World world) : check_(check), world_(std::move(world)) {}
    void TestBody() override { check_.run(world_); }

   private:
    Check check_;
    World world_;
  };
  for (const std::string_view name : world.left_out) {
    const auto is_named = [&](const Check& check) { return check.name == name; };
    if (std::ranges::none_of(kMessages, is_named) && std::ranges::none_of(kCollectives, is_named) &&
        std::ranges::none_of(kDuplicates, is_named))
      throw std::invalid_argument("no check of transports is called " + std::string(name));
  }
  for (const Check& check : checks) {
    if (std::ranges::find(world.left_out, check.name) != world.left_out.end()) continue;
    ::testing::RegisterTest(
        suite, check.name, nullptr, nullptr, __FILE__, __LINE__,
        [check, world]() -> ::testing::Test* { return new Test(check, world); });
  }
  return true;
}

/// All checks but those of duplicates.
inline bool register_transport(const char* suite, const World& world) {
  return register_checks(suite, kMessages, world) && register_checks(suite, kCollectives, world);
}

}  // namespace winnow::conformance
