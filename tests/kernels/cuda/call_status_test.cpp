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
    counts_ = std::make_unique<PinnedArray<kernels::CallCounts>>(2);
    status_->upload(std::vector<CallStatus>(1), *stream_);
    report_->span()[0] = {};
    counts_->span()[0] = counts_->span()[1] = {};
  }

  CallStatus* status() const { return status_->data(); }
  const CallReport& report() const { return report_->span()[0]; }
  std::uint64_t refused(std::size_t bucket) const { return counts_->span()[bucket].refused; }
  Exec exec() const { return stream_->exec(); }

  void say(const CallStatus& status) { status_->upload(std::vector{status}, *stream_); }
  void end_call(std::uint64_t number, std::size_t bucket) {
    kernels::end_call(exec(), {status(), number, report_->data(), counts_->data() + bucket});
  }

  std::unique_ptr<Stream> stream_;

 private:
  std::unique_ptr<DeviceArray<CallStatus>> status_;
  std::unique_ptr<PinnedArray<CallReport>> report_;
  std::unique_ptr<PinnedArray<kernels::CallCounts>> counts_;
};

TEST_F(CallStatusOnDevice, ACopyOfBytesTakesNoCondition) {
  const DeviceArray<float> elements(2);
  Exec there = exec();
  there.condition = kernels::refused(*status());
  EXPECT_THROW(kernels::copy(there, std::as_writable_bytes(elements.span()).first(1),
                             std::as_bytes(elements.span()).last(1)),
               UsageError);
}

/// A graph ends the calls of one number. Its replay leaves the end of later calls as it is.
TEST_F(CallStatusOnDevice, AGraphEndsCalls) {
  const Graph graph(*stream_, [&] { end_call(1, 0); });
  say({.call = 41, .not_finite = 1});
  end_call(7, 0);
  graph.launch(*stream_);
  say({.call = 43, .not_finite = 1});
  graph.launch(*stream_);
  stream_->synchronize();
  EXPECT_EQ(report().done, 8U);
  EXPECT_EQ(report().next, 44U);  // each replay counts
  EXPECT_EQ(refused(0), 2U);
}

}  // namespace
}  // namespace winnow::tests
