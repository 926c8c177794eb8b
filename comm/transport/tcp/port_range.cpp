// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "comm/transport/tcp/port_range.hpp"

#include <charconv>
#include <string>
#include <system_error>
#include <winnow/error.hpp>

namespace winnow::comm {

PortRange PortRange::parse(std::string_view text) {
  if (text.empty()) return {};
  constexpr int kMostPorts = 65535;
  PortRange range;
  const char* const end = text.data() + text.size();
  const auto [dash, first_error] = std::from_chars(text.data(), end, range.first);
  bool good = first_error == std::errc() && dash != end && *dash == '-';
  if (good) {
    const auto [last, last_error] = std::from_chars(dash + 1, end, range.last);
    good = last_error == std::errc() && last == end;
  }
  WINNOW_EXPECTS(good && range.first >= 1 && range.first <= range.last && range.last <= kMostPorts,
                 "ports '" + std::string(text) +
                     "': must be FIRST-LAST, such as 29600-29699, from 1 to 65535");
  return range;
}

PortRange PortRange::without(int port) const {
  PortRange others = *this;
  if (first == 0 || port < first || port > last) return others;
  WINNOW_EXPECTS(first != last, "WINNOW_TCP_PORTS has only the port at which ranks meet, " +
                                    std::to_string(port) +
                                    ": name others there or in TcpOptions::ports, or another "
                                    "WINNOW_TCP_PORT");
  if (port == first)
    ++others.first;
  else if (port == last)
    --others.last;
  else
    others.left_out = port;
  return others;
}

}  // namespace winnow::comm
