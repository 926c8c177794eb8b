// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace winnow {

/// What messages of one level pass through. A port sends one message at a time and receives one at
/// a time, both at once: a node's network card, a core that copies, a GPU's link.
struct Link {
  enum class Port { per_rank, per_node };

  double alpha = 0;  ///< seconds from the first byte sent to the first byte received
  double beta = 1;   ///< bytes per second of a port in each direction
  Port port = Port::per_rank;

  /// Seconds that a message keeps a port busy.
  double seconds(std::uint64_t message_bytes) const {
    return static_cast<double>(message_bytes) / beta;
  }

  friend bool operator==(const Link&, const Link&) = default;
};

/// How fast a cluster is: a value. Between nodes the ranks of a node share its uplink; inside one a
/// rank has a port of its own, since it is its core (or its GPU's link) that moves the bytes.
struct LinkModel {
  Link intra{.alpha = 1e-6, .beta = 10e9, .port = Link::Port::per_rank};  ///< inside a node
  Link inter{.alpha = 20e-6, .beta = 1.25e9, .port = Link::Port::per_node};
  double pass = 10e9;  ///< bytes per second that a rank's passes over memory read and write
  /// Bytes of the shortest bucket that Winnow's ring sums clearly faster than the transport's own
  /// allreduce.
  std::uint64_t ring = kNever;

  static constexpr std::uint64_t kNever = ~std::uint64_t{0};

  /// Seconds per byte of a pass.
  double gamma() const { return 1 / pass; }

  /// Reads words separated by blanks or '+': "inter=LATENCY,BANDWIDTH[,per-node|,per-rank]",
  /// "intra=" the same, "pass=BANDWIDTH", "ring=BYTES", e.g. "inter=50us,100Mbit/s
  /// intra=1us,10GB/s". What is not named keeps its default. Throws UsageError, and says what would
  /// be right.
  static LinkModel parse(std::string_view text);
  /// All words in the form that parse reads, with `mark` between, "ring" only where it is not
  /// kNever; what it reads back is equal.
  std::string to_string(char mark = ' ') const;

  friend bool operator==(const LinkModel&, const LinkModel&) = default;
};

}  // namespace winnow
