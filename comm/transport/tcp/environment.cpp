// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "comm/transport/tcp/environment.hpp"

#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <system_error>
#include <winnow/error.hpp>

#include "comm/transport/tcp/socket.hpp"
#include "comm/transport/tls.hpp"

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
