// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
// An AllReducer decides by the kind of a transport's failure, and never by its text.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>
#include <winnow/winnow.hpp>

#include "comm/transport/failure.hpp"
#include "tests/harness/forwarding_transport.hpp"
#include "tests/harness/ranks.hpp"
#include "tests/laws/kept.hpp"

namespace winnow::tests {
namespace {

using comm::Failure;
using testing::HasSubstr;
using testing::Not;

/// Keeps the AllReducer from a thread of its own. Once `failure` is set, start() throws it.
class FailingTransport final : public ForwardingTransport {
 public:
  using ForwardingTransport::ForwardingTransport;
  bool allows_threads() const override { return false; }
  Ticket start(const Exec& exec) override {
    if (failure) comm::fail_by(*failure);
    return ForwardingTransport::start(exec);
  }

  std::optional<Failure> failure;
};

/// The error of a call.
struct Thrown {
  bool is_usage_error = false;
  std::optional<FailureKind> kind{};  ///< of a CommError
  std::string text{};
};

Thrown thrown_by(const std::function<void()>& call) {
  try {
    call();
  } catch (const UsageError& error) {
    return {.is_usage_error = true, .text = error.what()};
  } catch (const CommError& error) {
    return {.kind = error.kind(), .text = error.what()};
  }
  return {};
}

/// Rank 0's transport fails so in a call of a known bucket, while each rank has a call of another
/// AllReducer in flight. `expect` looks at what each rank's call throws.
void run(const Failure& failure, const std::function<void(const Thrown&)>& expect) {
  const Options options{.compressor = "topk:0.02",
                        .schedule = "gather",
                        .op = ReduceOp::sum,
                        .min_bytes = 0,
                        .deadline = 60};
  constexpr std::size_t kCount = 4000;
  Kept<std::vector<float>> buckets;
  run_ranks(3, 2, [&](std::span<std::shared_ptr<Transport>> transports) {
    const auto one = std::make_shared<FailingTransport>(transports[0]);
    const auto two = std::make_shared<FailingTransport>(transports[1]);
    AllReducer first(one, options), second(two, options);
    std::vector<float>&values = buckets.make(kCount, 1.0F), &others = buckets.make(kCount, 2.0F);
    first.all_reduce(values, 1);
    tell_rank_0(*transports[0]);  // that the call has ended, which an abort would end, too
    Work work = second.all_reduce_async(others, 1);
    if (one->rank() == 0) one->failure = failure;
    expect(thrown_by([&] { first.all_reduce(values, 1); }));
    EXPECT_EQ(thrown_by([&] { first.all_reduce(values, 1); }).kind, failure.kind);
    work.wait();
  });
}

TEST(FailureKind, UsageIsAUsageErrorOnAllRanks) {
  run({"the ranks have drifted apart", FailureKind::usage}, [](const Thrown& thrown) {
    EXPECT_TRUE(thrown.is_usage_error) << thrown.text;
    EXPECT_THAT(thrown.text, HasSubstr("the ranks have drifted apart"));
    EXPECT_THAT(thrown.text, HasSubstr("known here: a bucket of parameters 1 (4000 float32)"));
  });
}

TEST(FailureKind, AMissedDeadlineComesWithAdvice) {
  run({"it took too long", FailureKind::deadline}, [](const Thrown& thrown) {
    EXPECT_EQ(thrown.kind, FailureKind::deadline);
    EXPECT_THAT(thrown.text, HasSubstr("it took too long"));
    EXPECT_THAT(thrown.text, HasSubstr("in one order"));
  });
}

TEST(FailureKind, IsNotReadFromTheText) {
  run({"usage error: the deadline passed", FailureKind::environment}, [](const Thrown& thrown) {
    EXPECT_EQ(thrown.kind, FailureKind::environment);
    EXPECT_THAT(thrown.text, HasSubstr("usage error: the deadline passed"));
    EXPECT_THAT(thrown.text, Not(HasSubstr("known here")));
    EXPECT_THAT(thrown.text, Not(HasSubstr("in one order")));
  });
}

}  // namespace
}  // namespace winnow::tests
