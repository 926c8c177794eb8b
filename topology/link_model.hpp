// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace winnow {

/// A link of one level. A port sends one message at a time and receives one at a time, both at
/// once: a node's network card, a core that copies, a GPU's link.
struct Link {
  enum class Port { per_rank, per_node };

  double alpha = 0;  ///< seconds from the first byte sent to the first byte received
  double beta = 1;   ///< bytes per second of a port in each direction
  Port port = Port::per_rank;

  /// Seconds for which a message occupies a port.
  double seconds(std::uint64_t message_bytes) const {
    return static_cast<double>(message_bytes) / beta;
  }

  friend bool operator==(const Link&, const Link&) = default;
};

/// How fast a cluster is; a value. Between nodes, a node's ranks share its uplink. Within a node
/// each rank has its own port, since its own core (or its GPU's link) moves the bytes.
struct LinkModel {
  Link intra{.alpha = 1e-6, .beta = 10e9, .port = Link::Port::per_rank};  ///< within a node
  Link inter{.alpha = 20e-6, .beta = 1.25e9, .port = Link::Port::per_node};
  double pass = 10e9;  ///< bytes per second that a rank's passes over memory read and write
  /// Bytes of the shortest bucket that Winnow's ring sums clearly faster than the transport's own
  /// allreduce.
  std::uint64_t ring = kNever;

  static constexpr std::uint64_t kNever = ~std::uint64_t{0};

  /// Seconds per byte of a pass.
  double gamma() const { return 1 / pass; }

  /// Reads words separated by blanks or '+': "inter=LATENCY,BANDWIDTH[,per-node|,per-rank]",
  /// "intra=" likewise, "pass=BANDWIDTH", "ring=BYTES"; e.g. "inter=50us,100Mbit/s
  /// intra=1us,10GB/s". Words not given keep their default. Throws UsageError that says what would
  /// be right.
  static LinkModel parse(std::string_view text);
  /// All words in the form that parse reads, separated by `mark`; "ring" only if it is not kNever.
  /// Parsing the text gives an equal value.
  std::string to_string(char mark = ' ') const;

  friend bool operator==(const LinkModel&, const LinkModel&) = default;
};

}  // namespace winnow
