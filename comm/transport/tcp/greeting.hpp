// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string_view>
#include <winnow/tcp.hpp>

namespace winnow::comm {

/// The text of a greeting, as it lies in memory. In a refusal a note_of the failure follows.
struct Greeting {
  static constexpr std::size_t kMostText = 1024;  ///< bytes of a greeting or a refusal
  /// The use of the connection.
  enum class Purpose : std::uint32_t { control, data };

  Purpose purpose = Purpose::control;
  std::int32_t rank = 0, size = 0;       ///< the sender's
  TcpTls::Mode tls = TcpTls::Mode::off;  ///< of the sender
  std::uint64_t digest = 0;              ///< of the sender's list

  std::string_view text() const { return {reinterpret_cast<const char*>(this), sizeof *this}; }
  /// Nothing if the text is too short to begin with a greeting.
  static std::optional<Greeting> read(std::string_view text) {
    Greeting greeting;
    if (text.size() < sizeof greeting) return {};
    std::memcpy(&greeting, text.data(), sizeof greeting);
    return greeting;
  }
};
static_assert(sizeof(Greeting) == 24);

}  // namespace winnow::comm
