// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string_view>
#include <utility>

#include "tests/harness/forwarding_transport.hpp"

namespace winnow::tests {

/// Says that its ranks are on nodes of `per_node` ranks; 0: where they are.
class NodesTransport : public ForwardingTransport {
 public:
  NodesTransport(std::shared_ptr<Transport> inner, int per_node)
      : ForwardingTransport(std::move(inner)), per_node_(per_node) {}
  int node() const override {
    return per_node_ == 0 ? ForwardingTransport::node() : rank() / per_node_;
  }

 private:
  int per_node_;
};

/// The ranks of a node in tests of a schedule, for NodesTransport: two if it has two levels.
inline int per_node(std::string_view schedule) {
  return schedule.starts_with("two_level:") ? 2 : 0;
}

}  // namespace winnow::tests
