// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
// What every transport promises about messages, and what Winnow's own promise beyond: the failure
// that stays, and no allocation after warm-up. Collectives are in collectives_test.cpp.
#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <vector>
#include <winnow/conformance/transport.hpp>
#include <winnow/error.hpp>

#include "tests/harness/ranks_world.hpp"
#include "tests/harness/thread_allocations.hpp"

namespace winnow {
namespace {

const bool kRegistered =
    conformance::register_checks("Transport", conformance::kMessages, tests::ranks_world());

TEST(Transport, LaterCallsThrowTheFirstFailure) {
  conformance::for_each_size(tests::ranks_world(), [](conformance::Rank& self) {
    Transport& transport = self.transport();
    if (self.size() > 1) transport.recv(self.place(conformance::Bytes(10)), self.peer(), nullptr);
    const Ticket ticket = self.start();
    std::string first = conformance::thrown_by([&] {
      if (self.size() == 1) transport.abort("the only rank");
      transport.wait(ticket, conformance::briefly());
    });
    EXPECT_NE(first, "");
    transport.abort("another reason");
    transport.progress();
    for (int call = 0; call < 2; ++call) {
      EXPECT_EQ(conformance::thrown_by([&] { (void)self.start(); }), first);
      EXPECT_EQ(conformance::thrown_by([&] { transport.wait(ticket, conformance::soon()); }),
                first);
    }
  });
}

/// The kind of the CommError that `call` throws.
template <class Call>
std::optional<FailureKind> kind_of(const Call& call) {
  try {
    call();
  } catch (const CommError& error) {
    return error.kind();
  }
  return {};
}

TEST(Transport, AnAbortHasItsKindOnAllRanksWhateverItsReasonSays) {
  for (const FailureKind kind :
       {FailureKind::environment, FailureKind::deadline, FailureKind::usage}) {
    conformance::for_each_size(tests::ranks_world(), [kind](conformance::Rank& self) {
      if (self.rank() == 0) {
        self.transport().abort("usage error: the deadline passed", kind);
      } else {
        EXPECT_EQ(kind_of([&] { conformance::wait_for_ever(self, 0); }), kind);
      }
      EXPECT_EQ(kind_of([&] { (void)self.start(); }), kind);
    });
  }
}

TEST(Transport, AllocatesNothingInSteadyState) {
  conformance::for_each_size(tests::ranks_world(), [](conformance::Rank& self) {
    Transport* const transport = &self.transport();
    Workspace workspace;
    const Exec exec{.workspace = &workspace};
    const int size = transport->size(), rank = transport->rank();
    std::vector<float> elements(size == 2 ? 200000 : 40000);  // two ranks: several blocks
    conformance::Bytes mine(5000), all(mine.size() * static_cast<std::size_t>(size)), arrived(5000);
    const auto step = [&] {
      transport->Transport::all_reduce(exec, elements, ReduceOp::sum, conformance::soon());
      transport->all_reduce(exec, elements, ReduceOp::sum, conformance::soon());
      transport->all_gather(exec, mine, all, conformance::soon());
      transport->all_gather(exec, std::span(mine).first(3),
                            std::span(all).first(3 * static_cast<std::size_t>(size)),
                            conformance::soon());
      if (size == 1) return;
      for (int n = 0; n < 40; ++n) {
        transport->send(mine, (rank + 1) % size);
        transport->recv(arrived, (rank + size - 1) % size, nullptr);
        (void)transport->start(exec);
      }
      transport->wait(transport->start(exec), conformance::soon());
    };
    step();
    step();
    const std::uint64_t before = tests::thread_allocations(), blocks = workspace.allocations();
    for (int n = 0; n < 10; ++n) step();
    EXPECT_EQ(tests::thread_allocations(), before);
    EXPECT_EQ(workspace.allocations(), blocks);
  });
}

}  // namespace
}  // namespace winnow
