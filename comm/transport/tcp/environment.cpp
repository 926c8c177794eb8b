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
#include <string_view>
#include <system_error>
#include <winnow/error.hpp>

#include "comm/transport/tcp/socket.hpp"
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

constexpr std::array<std::string_view, 10> kVariables = {
    "WINNOW_SOCKET_IFNAME", "WINNOW_TCP_JOB",           "WINNOW_TCP_PORT",
    "WINNOW_TCP_PORTS",     "WINNOW_TCP_SECRET",        "WINNOW_TCP_SECRET_FILE",
    "WINNOW_TCP_TLS",       "WINNOW_TCP_TLS_AUTHORITY", "WINNOW_TCP_TLS_CERTIFICATE",
    "WINNOW_TCP_TLS_KEY"};

/// A job whose TLS is misspelt would travel in the clear, and one whose secret is would be open.
void expect_no_strangers() {
  constexpr std::string_view kAny = "WINNOW_", kTcp = "WINNOW_TCP";
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    const std::string_view variable(*entry);
    const std::string_view name = variable.substr(0, variable.find('='));
    const auto is_known = [](std::string_view word) {
      return std::ranges::find(kVariables, word) != kVariables.end();
    };
    if (!name.starts_with(kAny) || is_known(name)) continue;
    const std::string whole = std::string(kTcp).append(name.substr(kAny.size() - 1));
    const std::string_view meant = is_known(whole) ? whole : nearest_word(name, kVariables);
    WINNOW_EXPECTS(!is_known(whole) && !name.starts_with(kTcp) && edit_distance(name, meant) > 2,
                   "unknown environment variable '" + std::string(name) + "'; " +
                       advice(meant.empty() ? name : meant, kVariables));
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
