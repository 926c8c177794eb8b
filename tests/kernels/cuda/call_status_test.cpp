// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "kernels/call_status.hpp"

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <vector>
#include <winnow/error.hpp>

#include "kernels/memory_ops.hpp"
#include "tests/harness/device.hpp"
#include "tests/harness/graph.hpp"

namespace winnow::tests {
namespace {

using kernels::CallReport;
using kernels::CallStatus;

/// The status of a call in device memory, and a report.
class CallStatusOnDevice : public DeviceTest {
 protected:
  void SetUp() override {
    DeviceTest::SetUp();
    if (IsSkipped()) return;
    stream_ = std::make_unique<Stream>();
    status_ = std::make_unique<DeviceArray<CallStatus>>(1);
    report_ = std::make_unique<PinnedArray<CallReport>>(1);
    refused_ = std::make_unique<PinnedArray<std::uint64_t>>(2);
    status_->upload(std::vector<CallStatus>(1), *stream_);
    report_->span()[0] = {};
    refused_->span()[0] = refused_->span()[1] = 0;
  }

  CallStatus* status() const { return status_->data(); }
  CallStatus found() const { return status_->download(*stream_).front(); }
  const CallReport& report() const { return report_->span()[0]; }
  std::uint64_t refused(std::size_t bucket) const { return refused_->span()[bucket]; }
  Exec exec() const { return stream_->exec(); }

  void say(const CallStatus& status) { status_->upload(std::vector{status}, *stream_); }
  void end_call(std::uint64_t number, std::size_t bucket) {
    kernels::end_call(exec(), {status(), number, report_->data(), refused_->data() + bucket});
  }

  std::unique_ptr<Stream> stream_;

 private:
  std::unique_ptr<DeviceArray<CallStatus>> status_;
  std::unique_ptr<PinnedArray<CallReport>> report_;
  std::unique_ptr<PinnedArray<std::uint64_t>> refused_;
};

/// Kernels work where the status lets them.
TEST_F(CallStatusOnDevice, DecidesWhatIsDone) {
  const DeviceArray<float> elements(5);
  const auto run = [&] {
    elements.upload(std::vector<float>(5), *stream_);
    Exec there = exec();
    there.condition = kernels::sound(*status());
    kernels::fill(there, elements.span().first(1), 1);
    there.condition = kernels::refused(*status());
    kernels::fill(there, elements.span().subspan(1, 1), 2);
    there.condition.any = false;
    kernels::fill(there, elements.span().subspan(2, 1), 3);
    kernels::copy(there, elements.span().subspan(3, 1), elements.span().subspan(2, 1));
    EXPECT_THROW(kernels::copy(there, std::as_writable_bytes(elements.span()).first(1),
                               std::as_bytes(elements.span()).last(1)),
                 UsageError);
    kernels::fill(exec(), elements.span().subspan(4, 1), 4);
    return elements.download(*stream_);
  };
  EXPECT_EQ(run(), (std::vector<float>{1, 0, 3, 3, 4}));
  say({.not_finite = 1});
  EXPECT_EQ(run(), (std::vector<float>{1, 2, 0, 0, 4}));
  end_call(0, 0);
  say({.spoiled = 1});
  EXPECT_EQ(run(), (std::vector<float>{0, 2, 0, 0, 4}));
}

TEST_F(CallStatusOnDevice, EndsACall) {
  end_call(0, 0);
  stream_->synchronize();
  EXPECT_EQ(report().done, 1U);
  EXPECT_EQ(report().unsound_call, 0U);
  say({.spoiled = 1, .unsound = ~1U});
  end_call(1, 1);
  say({.spoiled = 1, .unsound = ~0U});
  end_call(2, 1);
  say({.not_finite = 1});
  end_call(3, 0);
  end_call(4, 0);
  stream_->synchronize();
  EXPECT_EQ(report().done, 5U);
  EXPECT_EQ(report().unsound_call, 2U);
  EXPECT_EQ(report().unsound, 2U);
  EXPECT_EQ(refused(0), 1U);
  EXPECT_EQ(refused(1), 2U);
  EXPECT_EQ(found().spoiled + found().not_finite + found().unsound, 0U);
}

/// A graph ends calls of one number, and takes nothing back of later ones.
TEST_F(CallStatusOnDevice, AGraphEndsCalls) {
  const Graph graph(*stream_, [&] { end_call(1, 0); });
  say({.not_finite = 1});
  end_call(7, 0);
  graph.launch(*stream_);
  say({.not_finite = 1});
  graph.launch(*stream_);
  stream_->synchronize();
  EXPECT_EQ(report().done, 8U);
  EXPECT_EQ(refused(0), 2U);
}

}  // namespace
}  // namespace winnow::tests
