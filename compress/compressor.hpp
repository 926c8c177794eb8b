// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <winnow/exec.hpp>

#include "compress/message.hpp"
#include "compress/part.hpp"

namespace winnow::compress {

/// How a rank's gradient becomes a message: a selection, the coding of its values, and error
/// feedback with what is not sent. Stateless: what is carried lies in the Part's ParameterStates.
class Compressor {
 public:
  virtual ~Compressor() = default;

  /// The specification in its canonical form, e.g. "topk:0.01".
  virtual std::string name() const = 0;
  /// k: elements kept of a parameter (or piece) of `count` elements.
  virtual std::uint64_t kept(std::uint64_t count) const = 0;
  /// Whether it keeps everything exactly, so that a dense schedule does the same for less.
  virtual bool lossless() const = 0;
  /// Error feedback, selection and coding of one part: writes one sealed message of
  /// message_bytes(part.count, part.k) bytes to `out`, leaves the rest in the residuals and the
  /// elements zero. Sets Header::kPoison where acc is not finite.
  virtual void encode(const Exec& exec, float decay, const Part& part, const Header& header,
                      std::span<std::byte> out) const = 0;
};

/// A line of the table of compressors.
struct CompressorEntry {
  std::string_view name;
  std::string_view grammar;  ///< how it is written, for messages and --help
  std::unique_ptr<Compressor> (*make)(std::string_view argument);
};
std::span<const CompressorEntry> compressors();

/// Parses e.g. "topk:0.01". Throws UsageError; an unknown word names the nearest known one.
std::unique_ptr<Compressor> make_compressor(std::string_view specification);

}  // namespace winnow::compress
