// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include <winnow/error.hpp>

#include "comm/transport/bridge/host_messages.hpp"
#include "comm/transport/bridge/host_words.hpp"
#include "comm/transport/bridge/staged.hpp"

namespace winnow::comm {
namespace {

[[noreturn]] void refuse() {
  fail_usage("this Winnow was built without CUDA; pass host memory and Place::host");
}

}  // namespace

std::unique_ptr<Transport> staged(Transport&) {
  refuse();
}

std::unique_ptr<Transport> host_messages(Transport&, void*) {
  refuse();
}

std::span<const std::byte> copy_to_host(const Exec&, std::span<const std::byte>) {
  refuse();
}

void await_words(const Exec&, Transport&, Deadline) {
  refuse();
}

}  // namespace winnow::comm
