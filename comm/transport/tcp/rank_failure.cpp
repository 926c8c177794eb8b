// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "comm/transport/tcp/rank_failure.hpp"

#include <charconv>
#include <cstddef>
#include <system_error>

#include "comm/transport/printable.hpp"

namespace winnow::comm {
namespace {

constexpr std::string_view kHead = "winnow-tcp-failure;", kUsageWord = ";usage;",
                           kCommWord = ";comm;";
constexpr std::size_t kMostFailure = 1024;  // bytes of a text that travel

}  // namespace

RankFailure RankFailure::of(int rank, const Error& error) {
  const auto* const comm = dynamic_cast<const CommError*>(&error);
  const bool is_usage = dynamic_cast<const UsageError*>(&error) != nullptr;
  return {.rank = rank,
          .kind = is_usage ? Kind::usage : Kind::comm,
          .text = error.what(),
          .code = comm == nullptr ? 0 : comm->code()};
}

std::string RankFailure::line() const {
  return std::string(kHead)
      .append(std::to_string(rank))
      .append(kind == Kind::usage ? kUsageWord : kCommWord)
      .append(printable(std::string_view(text).substr(0, kMostFailure)));
}

std::optional<RankFailure> RankFailure::parse(std::string_view line) {
  if (!line.starts_with(kHead)) return {};
  RankFailure failure;
  const char* const end = line.data() + line.size();
  const auto [last, error] = std::from_chars(line.data() + kHead.size(), end, failure.rank);
  if (error != std::errc()) return {};
  const std::string_view rest(last, static_cast<std::size_t>(end - last));
  const bool is_usage = rest.starts_with(kUsageWord);
  if (!is_usage && !rest.starts_with(kCommWord)) return {};
  failure.kind = is_usage ? Kind::usage : Kind::comm;
  const std::size_t head = is_usage ? kUsageWord.size() : kCommWord.size();
  failure.text = printable(rest.substr(head, kMostFailure));
  return failure;
}

void RankFailure::fail() const {
  const std::string what = "rank " + std::to_string(rank) + ": " + text;
  if (kind == Kind::usage) throw UsageError(what);
  throw CommError(what, code);
}

}  // namespace winnow::comm
