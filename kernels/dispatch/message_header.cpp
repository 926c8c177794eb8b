// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "kernels/message_header.hpp"

#include "kernels/dispatch/bodies.hpp"
#include "kernels/dispatch/expect_message.hpp"

namespace winnow::kernels {

namespace {

void expect_messages(std::span<const ReceivedMessage> messages, const HeaderLayout& layout) {
  expect_layout(layout);
  for (const ReceivedMessage& message : messages) {
    expect_header(message.bytes);
    WINNOW_EXPECTS(message.sum != nullptr, "a message is checked by the checksum of its bytes");
  }
}

}  // namespace

void claimed_k(const Exec& exec, const ClaimedKJob& job) {
  expect_layout(job.layout);
  for (const ReceivedMessage& message : job.messages) expect_header(message.bytes);
  WINNOW_EXPECTS(job.k.size() == job.messages.size(), "each message needs a word for its k");
  dispatch(exec, &Bodies::claimed_k, job);
}

void check_headers(const Exec& exec, const CheckHeadersJob& job) {
  expect_messages(job.messages, job.layout);
  WINNOW_EXPECTS(job.status.size() == job.messages.size(),
                 "each message needs a word for its status");
  dispatch(exec, &Bodies::check_headers, job);
}

void judge_messages(const Exec& exec, const JudgeMessagesJob& job) {
  expect_messages(job.messages, job.layout);
  WINNOW_EXPECTS(job.status != nullptr, "messages are judged for the status of a call");
  dispatch(exec, &Bodies::judge_messages, job);
}

}  // namespace winnow::kernels
