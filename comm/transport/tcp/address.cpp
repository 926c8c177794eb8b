// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "comm/transport/tcp/address.hpp"

#include <sys/stat.h>

#include <algorithm>
#include <charconv>
#include <fstream>
#include <winnow/error.hpp>

#include "comm/transport/crypto.hpp"
#include "comm/transport/printable.hpp"
#include "topology/words.hpp"

namespace winnow::comm {
namespace {

constexpr std::string_view kPrefix = "winnow-tcp-2";
constexpr std::size_t kMostShown = 400;  // characters of a wrong text in an error

class Fnv {
 public:
  void add(std::string_view text) {
    for (const char c : text) value_ = (value_ ^ static_cast<unsigned char>(c)) * 0x100000001b3;
    value_ = (value_ ^ 0xff) * 0x100000001b3;  // no character of an address
  }
  std::uint64_t value() const { return value_; }

 private:
  std::uint64_t value_ = 0xcbf29ce484222325;
};

void append_hex(std::string& text, std::uint64_t value, int digits) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  while (digits-- > 0) text += kDigits[(value >> (4 * digits)) & 15];
}

/// Whether all of `text` is a number in hexadecimal digits.
template <class Number>
bool read_hex(std::string_view text, Number& number) {
  const char* const end = text.data() + text.size();
  const auto [last, error] = std::from_chars(text.data(), end, number, 16);
  return text.size() == 2 * sizeof number && error == std::errc() && last == end;
}

/// A wrong text, for an error, without what may be a part of an address's random number: who has it
/// may join, and errors lie in logs. An error's text in the place of an address stays as it is.
std::string shown(std::string_view text) {
  const std::size_t most = text.find("winnow-tcp") == std::string_view::npos ? 15 : 7;
  constexpr std::string_view kDigits = "0123456789abcdefABCDEF";
  std::string masked;
  while (!text.empty() && masked.size() < kMostShown) {
    const std::size_t digits = std::min(text.find_first_not_of(kDigits), text.size());
    masked += digits > most ? std::string_view("...") : text.substr(0, digits);
    text.remove_prefix(digits);
    const std::size_t others = std::min(text.find_first_of(kDigits), text.size());
    masked += text.substr(0, others);
    text.remove_prefix(others);
  }
  return printable(std::string_view(masked).substr(0, kMostShown));
}

}  // namespace

std::string TcpAddress::text() const {
  std::string text(kPrefix);
  text += ';';
  for (const std::uint8_t byte : nonce) append_hex(text, byte, 2);
  text += ';';
  append_hex(text, machine, 16);
  char separator = ';';
  for (const Endpoint& endpoint : endpoints) {
    text += separator + endpoint.text();
    separator = ',';
  }
  return text;
}

TcpAddress TcpAddress::parse(std::string_view text) {
  TcpAddress address;
  std::string_view rest = text;
  bool good = cut(rest, ';') == kPrefix;
  const std::string_view nonce = cut(rest, ';');
  good &= nonce.size() == 2 * address.nonce.size();
  for (std::size_t i = 0; good && i < address.nonce.size(); ++i)
    good = read_hex(nonce.substr(2 * i, 2), address.nonce[i]);
  good = good && read_hex(cut(rest, ';'), address.machine);
  good = good && !rest.empty() && !rest.ends_with(',');
  while (good && !rest.empty()) {
    const auto endpoint = Endpoint::parse(cut(rest, ','));
    good = endpoint.has_value();
    if (good) address.endpoints.push_back(*endpoint);
  }
  WINNOW_EXPECTS(good, "'" + shown(text) + "' is no address of a TcpListener");
  return address;
}

TcpAddress::Nonce TcpAddress::new_nonce() {
  Nonce nonce;
  random_bytes(std::as_writable_bytes(std::span(nonce)));
  return nonce;
}

// Containers of one machine have the boot's number in common, but mostly not the network.
std::uint64_t TcpAddress::this_machine() {
  Fnv hash;
  std::string boot;
  std::getline(std::ifstream("/proc/sys/kernel/random/boot_id"), boot);
  struct stat network {};
  if (boot.empty() || ::stat("/proc/self/ns/net", &network) != 0) {
    const Nonce alone = new_nonce();
    hash.add({reinterpret_cast<const char*>(alone.data()), alone.size()});
    return hash.value();
  }
  hash.add(boot);
  hash.add(std::to_string(network.st_ino));
  return hash.value();
}

std::vector<Endpoint> reachable(const TcpAddress& address, std::uint64_t machine) {
  std::vector<Endpoint> endpoints = address.endpoints;
  if (address.machine == machine)
    std::ranges::stable_partition(endpoints, &Endpoint::is_local);
  else
    std::erase_if(endpoints, [](const Endpoint& endpoint) { return endpoint.is_local(); });
  return endpoints;
}

std::uint64_t digest_of(std::span<const std::string> addresses) {
  Fnv hash;
  for (const std::string& address : addresses) hash.add(address);
  return hash.value();
}

}  // namespace winnow::comm
