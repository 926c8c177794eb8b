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
  return {.rank = rank, .why = failure_of(error), .code = comm == nullptr ? 0 : comm->code()};
}

std::string RankFailure::line() const {
  return std::string(kHead)
      .append(std::to_string(rank))
      .append(why.kind == FailureKind::usage ? kUsageWord : kCommWord)
      .append(printable(std::string_view(why.text).substr(0, kMostFailure)));
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
  const std::size_t head = is_usage ? kUsageWord.size() : kCommWord.size();
  failure.why = {printable(rest.substr(head, kMostFailure)),
                 is_usage ? FailureKind::usage : FailureKind::environment};
  return failure;
}

void RankFailure::fail() const {
  const Failure named = of_rank(rank, why);
  if (named.kind == FailureKind::usage) fail_usage(named.text);
  fail_by(named, code);
}

}  // namespace winnow::comm
