// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "train/plot.hpp"

#include <cstdio>
#include <cstdlib>
#include <sstream>

#include "train/exit.hpp"
#include "train/format.hpp"

namespace train {

namespace {

constexpr const char* kStyle = R"(
set terminal pngcairo size 1600,720 font "DejaVu Sans,14" noenhanced background "#ffffff"
set border 3 linecolor "#888888"
set tics nomirror out scale 0.5 textcolor "#444444"
set mxtics default
set grid linecolor "#e8e8e8" linetype 1 linewidth 1
set xlabel textcolor "#222222" offset 0,-0.4
set ylabel textcolor "#222222" offset 0.5,0
set format y "%.1f"
set linetype 1 linecolor "#4c5a67" linewidth 3.5
set linetype 2 linecolor "#e07b00" linewidth 3.5
set linetype 3 linecolor "#0b7fab" linewidth 3.5
set linetype 4 linecolor "#3b8f3e" linewidth 3.5
set linetype 5 linecolor "#a63d8f" linewidth 3.5
set linetype cycle 5
set key top right reverse Left spacing 1.5 samplen 2.5 textcolor "#222222"
set label 1 at screen 0.066,0.955 font "DejaVu Sans Bold,17" textcolor "#222222"
set label 2 at screen 0.066,0.905 font "DejaVu Sans,13" textcolor "#666666"
)";

/// Quotes for gnuplot's single quotes, where only the quote itself is special.
std::string gnuplot_string(const std::string& text) {
  std::string result = "'";
  for (const char c : text) result += c == '\'' ? std::string("''") : std::string(1, c);
  return result + "'";
}

/// A data block for each run of the first seed: step, held-out loss, megabytes sent, seconds.
void write_data(std::ostream& script, const Report& report) {
  const auto runs = report.first_seed();
  for (std::size_t i = 0; i < runs.size(); ++i) {
    script << "$run" << i << " << END\n";
    for (const Point& point : runs[i].curve) {
      script << point.step << ' ' << point.held_out_loss << ' '
             << static_cast<double>(point.wire_bytes) * 1e-6 << ' ' << point.seconds << '\n';
    }
    script << "END\n";
  }
}

/// One panel: a line for each run, from a column of its data.
void write_panel(std::ostream& script, const Report& report, int column) {
  script << "plot ";
  const auto runs = report.first_seed();
  for (std::size_t i = 0; i < runs.size(); ++i) {
    script << (i == 0 ? "" : ", ") << "$run" << i << " using " << column
           << ":2 with lines linetype " << i + 1 << " title "
           << gnuplot_string(runs[i].compressor + " by " + runs[i].schedule);
  }
  if (report.target) {
    script << ", " << *report.target << " with lines linecolor '#999999' dashtype 2 title "
           << "'held-out loss to reach'";
  }
  script << '\n';
}

std::string title_of(const Report& report) {
  return "Held-out loss of a byte-level language model, " + std::to_string(report.ranks) +
         " data-parallel ranks";
}

std::string subtitle_of(const Report& report) {
  return grouped(report.parameters) + " parameters, " + grouped(report.text_bytes) + " bytes of " +
         report.source + ", seed " + std::to_string(report.recipe.seed) + ", commit " +
         report.commit;
}

}  // namespace

std::string plot_script(const std::string& path, const Report& report) {
  std::ostringstream script;
  script.precision(10);
  write_data(script, report);
  script << kStyle << "set output " << gnuplot_string(path) << '\n'
         << "set label 1 " << gnuplot_string(title_of(report)) << '\n'
         << "set label 2 " << gnuplot_string(subtitle_of(report)) << '\n'
         << "set multiplot layout 1,2 margins 0.066,0.972,0.13,0.84 spacing 0.07\n"
         << "set ylabel 'held-out loss, nats a byte'\n"
         << "set xlabel 'steps'\nset xrange [0:*]\n";
  write_panel(script, report, 1);
  script << "unset label 1\nunset label 2\nunset ylabel\nunset key\n"
         << "set xrange [*:*]\nset logscale x\nset mxtics 10\n";
  if (report.target) {
    script << "set xlabel 'seconds of training, log scale'\n";
    write_panel(script, report, 4);
  } else {
    script << "set xlabel 'megabytes sent by the busiest rank, log scale'\n";
    write_panel(script, report, 3);
  }
  script << "unset multiplot\nset output\n";
  return script.str();
}

void require_gnuplot() {
  if (std::system("gnuplot --version >/dev/null 2>&1 </dev/null") != 0) {
    throw Exit(kUsageStatus,
               "--plot needs gnuplot, which is not on the PATH: install gnuplot-nox, or leave "
               "--plot out");
  }
}

void draw_curves(const std::string& path, const Report& report) {
  const std::string script = plot_script(path, report);
  FILE* const gnuplot = popen("gnuplot >/dev/null", "w");
  bool drawn = gnuplot != nullptr;
  drawn = drawn && std::fwrite(script.data(), 1, script.size(), gnuplot) == script.size();
  if (gnuplot != nullptr) drawn = pclose(gnuplot) == 0 && drawn;
  if (!drawn) throw Exit(kFailureStatus, "gnuplot could not draw " + path);
}

}  // namespace train
