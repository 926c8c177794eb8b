// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <span>
#include <vector>
#include <winnow/error.hpp>

#include "compress/message.hpp"
#include "kernels/checksum.hpp"
#include "lab/reference/place.hpp"
#include "tests/fuzz/reach.hpp"

// decode() on arbitrary bytes. libFuzzer drives it if the compiler is clang:
//
//   export CXX=clang++-16
//   meson setup build-fuzz -Dfuzz=true -Db_sanitize=address,undefined -Db_lundef=false
//   ninja -C build-fuzz tests/fuzz/message_fuzz
//   build-fuzz/tests/fuzz/message_fuzz -max_total_time=60 tests/golden
//
// Otherwise message_replay runs files through it, as a test.
//
// Each input is tried three times: unchanged; with its correct checksum, which no random change
// would find; and mended, so that its header is one that some rank could have sent and its length
// follows from it. Then only the index part and the value part are left to refuse.

namespace {

using namespace winnow;
using compress::Codings;
using compress::Header;

void require(bool holds, const char* what) {
  if (holds) return;
  std::fprintf(stderr, "%s\n", what);
  std::abort();
}

/// Decodes as a sum would: all bodies give equal values, and finite ones if a scale was checked for
/// that.
void check_values(const compress::MessageView& view, const kernels::ValueFormat& format,
                  std::span<const std::byte> value_part) {
  if (format.coding == nullptr) {
    require(view.term.size() == 0, "decode() gives values that did not travel");
    return;
  }
  const auto k = static_cast<std::size_t>(view.header.k);
  std::vector<float> fast(k), slow(k);
  kernels::dequantize(Exec{}, format, k, value_part, 0, fast);
  kernels::dequantize(Exec{.place = lab::kReference}, format, k, value_part, 0, slow);
  require(k == 0 || std::memcmp(fast.data(), slow.data(), k * sizeof(float)) == 0,
          "a value decodes to other bits than in the reference");
  if (!view.term.value.empty()) {
    require(std::memcmp(fast.data(), view.term.value.data(), k * sizeof(float)) == 0,
            "decode() decodes other values than dequantize()");
  }
  if (format.block == 0) return;
  require(std::all_of(fast.begin(), fast.end(), [](float x) { return std::isfinite(x); }),
          "decode() accepted a scale whose values overflow");
}

/// Positions ascend and lie below count; whoever adds the values relies on that.
void check_index(const compress::MessageView& view) {
  require(view.term.index.size() == (view.carries_all() ? 0 : view.header.k),
          "decode() gives another number of positions than k");
  require(
      std::ranges::adjacent_find(view.term.index, std::greater_equal{}) == view.term.index.end(),
      "decode() accepted positions that do not ascend");
  require(view.term.index.empty() || view.term.index.back() < view.header.count,
          "decode() accepted a position that is not below count");
}

/// finish_message() could have written whatever decode() accepts, and decode() throws only what it
/// documents. Returns whether it accepts.
bool check_open(const Exec& exec, std::span<const std::byte> message,
                const compress::Expected& expected, const Codings& codings) {
  try {
    const compress::MessageView view = compress::decode(exec, message, expected, 0, codings);
    std::vector<std::uint64_t> words(message.size() / 8);
    const auto again = std::as_writable_bytes(std::span(words));
    const compress::Shape shape = compress::shape_of(view.header.count, view.header.k, codings);
    const auto layout = compress::lay_out(shape, again);
    const auto value_part = view.bytes.last(shape.value_bytes);
    std::ranges::copy(value_part, layout.value_part.begin());
    compress::finish_message(exec, view.header, shape, view.term.index, again, codings);
    require(std::memcmp(again.data(), message.data(), message.size()) == 0,
            "decode() accepted a message that finish_message() does not write");
    check_index(view);
    check_values(view, codings.value, value_part);
    fuzz::reach.count(view.header);
    return true;
  } catch (const UsageError&) {
  } catch (const CommError&) {
  }
  return false;
}

Header header_of(std::span<const std::byte> message) {
  Header header;
  if (message.size() >= sizeof header) std::memcpy(&header, message.data(), sizeof header);
  return header;
}

void put_header(const Header& header, std::span<std::byte> message) {
  std::memcpy(message.data(), &header, sizeof header);
}

/// The value format that a header claims, or float32 if there is no such format.
kernels::ValueFormat claimed_values(const Header& header) {
  const std::uint32_t block = header.value_coding < 16 ? 0 : 32u << (header.value_coding >> 4);
  for (const kernels::ValueCoding& coding : kernels::value_codings()) {
    const kernels::ValueFormat format{.coding = &coding, .block = block};
    if (coding.id == header.value_coding % 16 && kernels::valid_format(format)) return format;
  }
  return Codings{}.value;
}

// A support with every position, or with drawn ones, is only a header, so room for them could be
// huge.
constexpr std::uint64_t kMostK = 1 << 20;

/// The index coding that a header claims, as an option would name it; null if there is none.
const compress::IndexCoding* claimed_index(const Header& header) {
  for (const compress::IndexCoding* coding : compress::index_codings()) {
    const bool huge = coding->drawn && header.k > kMostK;
    if (coding->id == header.index_coding && coding->id != 0 && !huge) return coding;
  }
  return nullptr;
}

/// The codings that a header claims, with its index coding as an option would name it.
Codings claimed_codings(const Header& header) {
  const Codings claimed{.value = claimed_values(header), .index = claimed_index(header)};
  return header.kind == Header::Kind::support ? claimed.without_values() : claimed;
}

/// Decodes a message as what it claims to be; returns whether that is accepted.
bool check_claim(std::span<const std::byte> message) {
  Workspace workspace;
  const Workspace::Scope scope(workspace);
  const Header claimed = header_of(message);
  return check_open(Exec{.workspace = &workspace}, message, claimed, claimed_codings(claimed));
}

/// Decodes with both bodies; decodes what they accept again under other expectations.
void check_expectations(std::span<const std::byte> message) {
  Workspace workspace;
  const Workspace::Scope scope(workspace);
  const Exec exec{.workspace = &workspace};
  const Exec reference{.place = lab::kReference, .workspace = &workspace};
  const Header claimed = header_of(message);
  const Codings asked = claimed_codings(claimed);
  const bool accepted = check_open(exec, message, claimed, asked);
  require(check_open(reference, message, claimed, asked) == accepted,
          "decode() accepts what its reference body does not, or the other way round");
  if (!accepted) return;

  const Codings chosen{.value = asked.value};
  const bool usual = claimed.k == claimed.count ||
                     compress::choose_index_coding(claimed.count, claimed.k) == asked.index;
  require(check_open(exec, message, claimed, chosen) == usual,
          "decode() accepted an index coding that nobody asked for, or refused the usual one");
  Header most = claimed;  // if a receiver knows only a bound of k
  most.k = std::min(claimed.k + 1, claimed.count);
  Header count = claimed;
  count.count += 1;
  Header fewer = claimed;
  if (claimed.k > 0) {
    fewer.k -= 1;
  } else {
    fewer.part ^= 1;
  }
  Header elsewhere = claimed;
  elsewhere.digest ^= 1;
  require(most.k > kMostK || check_open(exec, message, compress::Expected::at_most(most), asked),
          "decode() asks for more than that k is within its bound");
  require(check_open(exec, message, most, asked) == (most.k == claimed.k),
          "decode() accepted another k than the one expected");
  for (const Header& other : {count, fewer, elsewhere}) {
    require(!check_open(exec, message, other, asked),
            "decode() accepted a message that is not the one expected");
  }
}

void correct_checksum(std::span<std::byte> message) {
  Header header = header_of(message);
  header.checksum = 0;
  put_header(header, message);
  std::uint64_t sum = 0;
  kernels::checksums(Exec{}, {{message}}, &sum);
  header.checksum = sum;
  put_header(header, message);
}

/// The message with a possible header and the length that it fixes.
std::vector<std::uint64_t> mended(std::span<const std::byte> message) {
  constexpr std::size_t kMostBytes = 16384;
  constexpr std::uint64_t kCounts = 4096;
  Header header = header_of(message);
  header.magic = Header::kMagic;
  header.version = Header::kVersion;
  header.flags &= Header::kPoison | Header::kRefused;
  const auto kind = static_cast<std::uint8_t>(header.kind);
  if (kind != 1 && (kind < 3 || kind > 6)) header.kind = static_cast<Header::Kind>(3 + kind % 4);
  const Codings codings = claimed_codings(header);
  if (codings.exact()) header.value_coding = codings.value.coding->id;
  if (codings.value.coding == nullptr) header.value_coding = 0;
  if (header.k > header.count || (header.k < header.count && header.count >> 32 != 0) ||
      header.count >> 40 != 0 ||
      compress::message_bytes(header.count, header.k, codings) > kMostBytes) {
    header.count %= kCounts;
    header.k %= header.count + 1;
  }
  if (header.k == header.count) {
    header.index_coding = 0;
  } else if (codings.index == nullptr) {
    header.index_coding = compress::choose_index_coding(header.count, header.k)->id;
  }
  const std::size_t bytes = compress::message_bytes(header.count, header.k, codings);
  std::vector<std::uint64_t> words(bytes / 8);
  const auto out = std::as_writable_bytes(std::span(words));
  std::memcpy(out.data(), message.data(), std::min(message.size(), bytes));
  put_header(header, out);
  correct_checksum(out);
  return words;
}

}  // namespace

// The name is libFuzzer's. NOLINTNEXTLINE(readability-identifier-naming)
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  // Words, for the alignment that decode() asks for.
  std::vector<std::uint64_t> words(size / 8 + 1);
  if (size > 0) std::memcpy(words.data(), data, size);
  const auto message = std::as_writable_bytes(std::span(words)).first(size);
  const bool accepted = check_claim(message);
  if (size < sizeof(Header)) return 0;
  const std::vector<std::uint64_t> whole = mended(message);
  check_expectations(std::as_bytes(std::span(whole)));
  if (size % 4 != 0) return 0;
  const std::uint64_t checksum = header_of(message).checksum;
  correct_checksum(message);
  require(!accepted || checksum == header_of(message).checksum,
          "decode() accepted a checksum that is not that of the bytes");
  const auto same = [&] { return std::memcmp(message.data(), whole.data(), size) == 0; };
  if (size != 8 * whole.size() || !same()) check_expectations(message);
  return 0;
}
