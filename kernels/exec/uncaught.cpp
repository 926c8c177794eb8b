// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "kernels/exec/uncaught.hpp"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <string_view>
#include <winnow/error.hpp>

namespace winnow {
namespace {

thread_local int noted_rank = -1;

using ShortText = std::array<char, 300>;

/// The rank that a launcher gave to this process, as text, or else what the thread has noted; "" if
/// neither. torchrun may run under another launcher, so its variables come first; Slurm sets its
/// own also where no step runs, so that one comes last.
std::string_view rank_text(ShortText& room) {
  const auto number = [](const char* name) {
    const char* const value = std::getenv(name);
    const std::string_view text = value == nullptr ? "" : value;
    const auto is_digit = [](char c) { return c >= '0' && c <= '9'; };
    return text.size() < 10 && std::ranges::all_of(text, is_digit) ? text : "";
  };
  if (!number("WORLD_SIZE").empty() && !number("RANK").empty()) return number("RANK");
  for (const char* const name : {"OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK"}) {
    if (!number(name).empty()) return number(name);
  }
  if (noted_rank < 0) return number("SLURM_PROCID");
  const int bytes = std::snprintf(room.data(), room.size(), "%d", noted_rank);
  return {room.data(), static_cast<std::size_t>(bytes)};
}

/// It takes no memory of the heap, which may have none left.
ShortText place_text() noexcept {
  ShortText rank{}, text{};
  std::array<char, 256> host{};
  if (::gethostname(host.data(), host.size() - 1) != 0) host = {"an unnamed host"};
  const std::string_view number = rank_text(rank);
  std::snprintf(text.data(), text.size(), "%s%.*s%s%s", number.empty() ? "" : "rank ",
                static_cast<int>(number.size()), number.data(), number.empty() ? "" : " on ",
                host.data());
  return text;
}

const char* kind_of(const Error& error) noexcept {
  if (dynamic_cast<const UsageError*>(&error) != nullptr) return "usage error";
  if (dynamic_cast<const CommError*>(&error) != nullptr) return "communication error";
  if (dynamic_cast<const CudaError*>(&error) != nullptr) return "CUDA error";
  return "error";
}

/// One write, so that lines of several ranks do not mix.
void write_line(const Error& error) noexcept {
  std::array<char, 4096> line{};
  const int bytes = std::snprintf(line.data(), line.size(), "winnow: %s: %s: %s",
                                  place_text().data(), kind_of(error), error.what());
  const auto end =
      std::min<std::size_t>(bytes < 0 ? 0 : static_cast<std::size_t>(bytes), line.size() - 1);
  std::replace(line.begin(), line.begin() + static_cast<std::ptrdiff_t>(end), '\n', ' ');
  line[end] = '\n';
  if (::write(STDERR_FILENO, line.data(), end + 1) < 0) return;  // then nobody reads it
}

std::terminate_handler previous_handler = nullptr;

[[noreturn]] void report_uncaught() {
  bool is_ours = false;
  try {
    if (std::current_exception() != nullptr) throw;
  } catch (const Error& error) {
    write_line(error);
    is_ours = true;
  } catch (...) {
  }
#ifdef __GLIBCXX__
  // It would say the same again, in two lines and without the rank.
  if (is_ours && previous_handler == __gnu_cxx::__verbose_terminate_handler) std::abort();
#endif
  if (previous_handler != nullptr) previous_handler();
  std::abort();
}

/// While the library is loaded.
struct Reporter {
  Reporter() noexcept { previous_handler = std::set_terminate(report_uncaught); }
  ~Reporter() {
    if (std::get_terminate() == report_uncaught) std::set_terminate(previous_handler);
  }
  Reporter(const Reporter&) = delete;
  Reporter& operator=(const Reporter&) = delete;
};

void report_what_nobody_catches() noexcept {
  static const Reporter reporter;
}

}  // namespace

Error::Error(const std::string& what) : std::runtime_error(what) {
  report_what_nobody_catches();
}

Error::Error(const char* what) : std::runtime_error(what) {
  report_what_nobody_catches();
}

void kernels::note_rank(int rank) noexcept {
  noted_rank = rank;
}

std::string kernels::this_rank() {
  return place_text().data();
}

}  // namespace winnow
