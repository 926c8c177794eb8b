// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "train/group.hpp"

#include <cstdint>
#include <exception>
#include <utility>

#include "train/exit.hpp"

namespace train {

namespace {

/// The outcome of rank 0's work, sent before the result, which only a success has.
struct Outcome {
  std::int32_t status = 0;
  std::uint64_t result_bytes = 0;
};

}  // namespace

Group::Group(std::unique_ptr<winnow::Transport> transport) : transport_(std::move(transport)) {}

void Group::barrier() {
  gather(std::byte{0});
}

std::string Group::from_first_rank(const std::function<std::string()>& work) {
  Outcome outcome;
  std::string result;
  if (rank() == 0) {
    try {
      result = work();
    } catch (const Exit& exit) {
      outcome.status = exit.status();
      result = exit.what();
    } catch (const std::exception& error) {
      outcome.status = kFailureStatus;
      result = error.what();
    }
    outcome.result_bytes = result.size();
  }
  broadcast(std::as_writable_bytes(std::span(&outcome, 1)));
  result.resize(outcome.result_bytes);
  broadcast(std::as_writable_bytes(std::span(result)));
  if (outcome.status != 0) throw Exit(outcome.status, result);
  return result;
}

void Group::gather_bytes(std::span<const std::byte> mine, std::span<std::byte> all) {
  transport_->all_gather(exec_, mine, all, winnow::Deadline::never());
}

void Group::broadcast(std::span<std::byte> bytes) {
  if (rank() == 0) {
    for (int peer = 1; peer < size(); ++peer) transport_->send(bytes, peer);
  } else {
    transport_->recv(bytes, 0, nullptr);
  }
  transport_->wait(transport_->start(exec_), winnow::Deadline::never());
}

}  // namespace train
