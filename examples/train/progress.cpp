// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "train/progress.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>

namespace train {

namespace {

constexpr std::chrono::milliseconds kRewriteEvery{200};

bool under_launcher() {
  for (const char* variable : {"OMPI_COMM_WORLD_SIZE", "PMIX_RANK", "PMI_SIZE", "SLURM_PROCID"}) {
    if (std::getenv(variable) != nullptr) return true;
  }
  return false;
}

}  // namespace

bool stderr_is_terminal() {
  if (!under_launcher()) return isatty(STDERR_FILENO) == 1;
  // On the launcher's own node rank 0's parent is the launcher; elsewhere it is a daemon whose
  // stderr is no terminal.
  const std::string path = "/proc/" + std::to_string(getppid()) + "/fd/2";
  const int file = open(path.c_str(), O_RDONLY | O_NOCTTY | O_NONBLOCK | O_CLOEXEC);
  if (file < 0) return false;
  const bool terminal = isatty(file) == 1;
  close(file);
  return terminal;
}

Progress::Progress(Show show, int rank, std::uint64_t total_steps)
    : enabled_(rank == 0 && show != Show::never),
      terminal_(enabled_ && stderr_is_terminal()),
      total_steps_(total_steps) {
  if (show == Show::automatic) enabled_ = terminal_;
}

void Progress::begin_run(const std::string& compressor, std::uint64_t steps) {
  compressor_ = compressor;
  steps_ = steps;
  step_ = 0;
  training_loss_ = held_out_ = std::nan("");
}

void Progress::step_done(double training_loss) {
  ++step_;
  ++total_done_;
  training_loss_ = training_loss;
  if (!enabled_ || !terminal_ || Clock::now() - written_ < kRewriteEvery) return;
  written_ = Clock::now();
  write("\r", "\033[K");
}

void Progress::held_out(double loss) {
  held_out_ = loss;
  if (enabled_ && !terminal_) write("", "\n");
}

void Progress::finish() const {
  if (enabled_ && terminal_) std::fputs("\r\033[K", stderr);
}

void Progress::write(const char* line_start, const char* line_end) {
  std::string losses;
  const auto add = [&](const char* what, double loss) {
    char text[40];
    std::snprintf(text, sizeof text, "  %s %.4f", what, loss);
    if (!std::isnan(loss)) losses += text;
  };
  add("training loss", training_loss_);
  add("held-out", held_out_);
  std::fprintf(stderr, "%s%-12s step %*llu of %llu%s  %s left%s", line_start, compressor_.c_str(),
               static_cast<int>(std::to_string(steps_).size()),
               static_cast<unsigned long long>(step_), static_cast<unsigned long long>(steps_),
               losses.c_str(), time_left().c_str(), line_end);
  std::fflush(stderr);
}

std::string Progress::time_left() const {
  const double elapsed = std::chrono::duration<double>(Clock::now() - start_).count();
  const auto done = static_cast<double>(total_done_);
  const long seconds = std::lround(elapsed / done * (static_cast<double>(total_steps_) - done));
  char text[32];
  std::snprintf(text, sizeof text, "%ld:%02ld", seconds / 60, seconds % 60);
  return text;
}

}  // namespace train
