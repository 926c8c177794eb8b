// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "comm/transport/tcp/environment.hpp"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string_view>
#include <system_error>
#include <utility>
#include <winnow/error.hpp>

#include "comm/transport/socket.hpp"
#include "comm/transport/tls.hpp"
#include "topology/nearest.hpp"

namespace winnow {
namespace comm {
namespace {

constexpr std::uintmax_t kMostSecret = std::uintmax_t{1} << 16;  // bytes

/// A file's content but for the ends of lines behind it.
std::string content_of(const std::string& path) {
  const std::string what = "WINNOW_TCP_SECRET_FILE='" + path + "'";
  std::error_code error;
  const auto status = std::filesystem::status(path, error);
  WINNOW_EXPECTS(std::filesystem::exists(status), what + ": " + errno_text(ENOENT));
  // Others, such as a pipe, may never end.
  WINNOW_EXPECTS(std::filesystem::is_regular_file(status), what + " is no regular file");
  const auto bytes = std::filesystem::file_size(path, error);
  WINNOW_EXPECTS(!error && bytes <= kMostSecret,
                 what + " has " + std::to_string(bytes) + " bytes: must be at most 65536");
  std::string content(bytes, '\0');
  std::ifstream file(path, std::ios::binary);
  WINNOW_EXPECTS(file.is_open(), what + ": " + errno_text(errno));
  file.read(content.data(), static_cast<std::streamsize>(bytes));
  content.resize(static_cast<std::size_t>(file.gcount()));
  while (content.ends_with('\n') || content.ends_with('\r')) content.pop_back();
  return content;
}

TcpTls tls_of_environment() {
  const auto value_of = [](const char* name) {
    const char* const given = std::getenv(name);
    return std::string(given == nullptr ? "" : given);
  };
  TcpTls tls{.certificate = value_of("WINNOW_TCP_TLS_CERTIFICATE"),
             .key = value_of("WINNOW_TCP_TLS_KEY"),
             .authority = value_of("WINNOW_TCP_TLS_AUTHORITY")};
  if (const char* const mode = std::getenv("WINNOW_TCP_TLS"))
    tls.mode = tls_mode_of(mode, "WINNOW_TCP_TLS");
  return tls;
}

constexpr std::string_view kAny = "WINNOW_", kTcp = "WINNOW_TCP_";

constexpr std::array<std::string_view, 10> kVariables = {
    "WINNOW_SOCKET_IFNAME", "WINNOW_TCP_JOB",           "WINNOW_TCP_PORT",
    "WINNOW_TCP_PORTS",     "WINNOW_TCP_SECRET",        "WINNOW_TCP_SECRET_FILE",
    "WINNOW_TCP_TLS",       "WINNOW_TCP_TLS_AUTHORITY", "WINNOW_TCP_TLS_CERTIFICATE",
    "WINNOW_TCP_TLS_KEY"};

/// Other libraries' names, without the prefix WINNOW_TCP_, and the variable that each means.
constexpr std::pair<std::string_view, std::string_view> kOtherNames[] = {
    {"AUTHORITY", "WINNOW_TCP_TLS_AUTHORITY"},
    {"CA", "WINNOW_TCP_TLS_AUTHORITY"},
    {"CA_FILE", "WINNOW_TCP_TLS_AUTHORITY"},
    {"CERT", "WINNOW_TCP_TLS_CERTIFICATE"},
    {"CERT_FILE", "WINNOW_TCP_TLS_CERTIFICATE"},
    {"CERTIFICATE", "WINNOW_TCP_TLS_CERTIFICATE"},
    {"KEY", "WINNOW_TCP_TLS_KEY"},
    {"KEY_FILE", "WINNOW_TCP_TLS_KEY"},
    {"HOST", "WINNOW_SOCKET_IFNAME"},
    {"INTERFACE", "WINNOW_SOCKET_IFNAME"},
    {"INTERFACES", "WINNOW_SOCKET_IFNAME"},
    {"IFNAME", "WINNOW_SOCKET_IFNAME"},
    {"SOCKET_IFNAME", "WINNOW_SOCKET_IFNAME"},
    {"PSK", "WINNOW_TCP_SECRET"},
    {"PASSWORD", "WINNOW_TCP_SECRET"},
    {"JOB_ID", "WINNOW_TCP_JOB"},
    {"MASTER_PORT", "WINNOW_TCP_PORT"},
    {"PORT_RANGE", "WINNOW_TCP_PORTS"}};

bool is_known(std::string_view name) {
  return std::ranges::find(kVariables, name) != kVariables.end();
}

/// The variable that is meant by a name which begins with WINNOW_TCP_ and is none; empty if none is
/// near. A prefix that all have makes none nearer.
std::string_view meant_by(std::string_view name) {
  constexpr std::string_view kTls = "TLS_";
  std::string_view rest = name.substr(kTcp.size());
  std::array<std::string_view, kVariables.size()> rests;
  std::ranges::transform(kVariables, rests.begin(), [](std::string_view known) {
    return known.substr(known.starts_with(kTcp) ? kTcp.size() : kAny.size());
  });
  const std::string_view near = nearest_word(rest, rests);
  if (rest.starts_with(kTls)) rest.remove_prefix(kTls.size());
  const auto other =
      std::ranges::find(kOtherNames, rest, [](const auto& names) { return names.first; });
  if (other != std::end(kOtherNames)) return other->second;
  if (near.empty()) return {};
  return kVariables[static_cast<std::size_t>(std::ranges::find(rests, near) - rests.begin())];
}

/// A variable that is probably meant by another name; empty if the name may be anybody's.
std::string_view meant_by_other(std::string_view name) {
  const std::string whole = std::string(kTcp).append(name.substr(kAny.size()));
  const auto known = std::ranges::find(kVariables, whole);
  if (known != kVariables.end()) return *known;
  constexpr std::size_t kNear = 2;  // edits
  const auto distance = [&](std::string_view one) { return edit_distance(name, one); };
  const std::string_view near = std::ranges::min(kVariables, {}, distance);
  return distance(near) <= kNear ? near : std::string_view();
}

/// A job whose TLS is misspelt would travel in the clear, and one whose secret is would be open.
void expect_no_strangers() {
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    const std::string_view variable(*entry);
    const std::string_view name = variable.substr(0, variable.find('='));
    if (!name.starts_with(kAny) || is_known(name)) continue;
    const bool is_ours = name.starts_with(kTcp);
    const std::string_view meant = is_ours ? meant_by(name) : meant_by_other(name);
    WINNOW_EXPECTS(!is_ours && meant.empty(),
                   "unknown environment variable '" + std::string(name) + "'; " +
                       (meant.empty() ? list_of(kVariables) : hint_of(meant)));
  }
}

}  // namespace

// A variable that is set to nothing would leave a job open that is meant to be closed.
std::string secret_of_environment() {
  const char* const secret = std::getenv("WINNOW_TCP_SECRET");
  const char* const path = std::getenv("WINNOW_TCP_SECRET_FILE");
  WINNOW_EXPECTS(secret == nullptr || path == nullptr,
                 "WINNOW_TCP_SECRET and WINNOW_TCP_SECRET_FILE are both set: set one of them");
  if (secret == nullptr && path == nullptr) return "";
  std::string found = secret != nullptr ? secret : content_of(path);
  WINNOW_EXPECTS(!found.empty(),
                 secret != nullptr ? std::string("WINNOW_TCP_SECRET is empty: unset it, or set it")
                                   : "WINNOW_TCP_SECRET_FILE='" + std::string(path) +
                                         "' is empty: it must hold a secret");
  return found;
}

void read_environment(TcpOptions& options) {
  expect_no_strangers();
  if (const char* const names = std::getenv("WINNOW_SOCKET_IFNAME")) options.interfaces = names;
  if (const char* const ports = std::getenv("WINNOW_TCP_PORTS")) options.ports = ports;
  options.tls = tls_of_environment();
}

}  // namespace comm

TcpOptions TcpOptions::from_environment() {
  TcpOptions options;
  options.secret = comm::secret_of_environment();
  comm::read_environment(options);
  return options;
}

}  // namespace winnow
