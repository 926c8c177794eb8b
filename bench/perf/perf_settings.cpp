// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "bench/perf/perf_settings.hpp"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <exception>
#include <iterator>
#include <string_view>
#include <winnow/error.hpp>

#include "comm/plan/checked_options.hpp"

namespace winnow::bench {
namespace {

const std::vector<NamedType> kTypes = {
    {"int8", ElementType::int8},      {"uint8", ElementType::uint8},
    {"int32", ElementType::int32},    {"uint32", ElementType::uint32},
    {"int64", ElementType::int64},    {"uint64", ElementType::uint64},
    {"half", ElementType::fp16},      {"float", ElementType::float32},
    {"double", ElementType::float64}, {"bfloat16", ElementType::bf16}};
const std::vector<NamedOp> kOps = {{"sum", ReduceOp::sum},
                                   {"prod", ReduceOp::product},
                                   {"max", ReduceOp::maximum},
                                   {"min", ReduceOp::minimum},
                                   {"avg", ReduceOp::average}};

/// The transport of ranks that are processes, or threads.
const char* own_transport(bool under_mpirun) {
  return under_mpirun ? "mpi" : "local";
}

/// Flags of nccl-tests and of the OSU benchmarks that are not here, but for those of their values
/// that ask for what is done anyway.
struct Foreign {
  const char *brief, *full;
  std::string_view same;  // these values, one character each
  const char* instead;
};
constexpr Foreign kForeign[] = {
    {"-g", "--ngpus", "1",
     "a rank has one GPU, with --memory device; mpirun -n or -t says how many ranks"},
    {"-r", "--root", "0", "an allreduce has no root; leave it out"},
    {"-a", "--average", "3", "the time is always the maximum over ranks; leave it out"},
    {"-p", "--parallel_init", "1", "ranks always start in parallel; leave it out"},
    {"-z", "--blocking", "1", "calls always block; leave it out"},
    {"-y", "--stream_null", "0",
     "with --memory device calls run on a stream of their own, never on the null stream; leave it "
     "out"},
    {"-C", "--report_cputime", "0", "the time is always that of the wall clock; leave it out"},
    {"-R", "--local_register", "0",
     "buckets are the caller's memory and are not registered; what Winnow sends from it registers "
     "with NCCL by itself; leave it out"},
    {"-D", "--device_implementation", "0",
     "nccl-tests has kernels of its own for that; there are none here; leave it out"},
    {"-V", "--device_cta_count", "",
     "nccl-tests has kernels of its own for that; there are none here; leave it out"},
    {"-M", "--memory_report", "0",
     "memory is not measured: Winnow holds 4 bytes for each element that travels compressed; leave "
     "it out"},
    {"-M", "--memory", "0", "memory is not measured; leave it out"},
    {"-x", "--cta_policy", "",
     "of nccl-tests it is NCCL's own, NCCL_CTA_POLICY; of the OSU benchmarks it is the number of "
     "warm-up calls: give -w"},
    {"-x", "--warmup", "", "the number of warm-up calls is -w"},
    {"", "--iterations", "", "the number of timed calls is -n; -i is a step, as in nccl-tests"},
    {"", "--full", "", "give -J FILE for all that is measured; -f is a factor, as in nccl-tests"},
    {"", "--validation", "", "give -c and a number of calls"}};

/// Values of other benchmarks and libraries that an argument refuses, and what is written here.
/// Empty: any other value, or none.
struct Meant {
  std::string_view flag, value;
  const char* instead;
};
constexpr const char* kMemory =
    "-d is the type of the elements, as in nccl-tests; for buffers on a GPU, -d of the OSU "
    "benchmarks, give --memory device";
constexpr Meant kMeant[] = {
    {"--datatype", "fp16", "give -d half"},
    {"--datatype", "float16", "give -d half"},
    {"--datatype", "f16", "give -d half"},
    {"--datatype", "bf16", "give -d bfloat16"},
    {"--datatype", "fp32", "give -d float"},
    {"--datatype", "float32", "give -d float"},
    {"--datatype", "f32", "give -d float"},
    {"--datatype", "fp64", "give -d double"},
    {"--datatype", "float64", "give -d double"},
    {"--datatype", "int", "give -d int32"},
    {"--datatype", "char", "give -d int8"},
    {"--datatype", "cuda", kMemory},
    {"--datatype", "managed", kMemory},
    {"--datatype", "openacc", kMemory},
    {"--datatype", "rocm", kMemory},
    {"--op", "mean", "give -o avg"},
    {"--op", "average", "give -o avg"},
    {"--op", "product", "give -o prod"},
    {"--op", "add", "give -o sum"},
    {"--op", "minimum", "give -o min"},
    {"--op", "maximum", "give -o max"},
    {"--timeout", "",
     "-T takes seconds, as in nccl-tests; the type of the elements, -T of the OSU benchmarks, is "
     "-d: float, double or int32, say"},
    {"--check", "",
     "-c takes a number of calls, as in nccl-tests: give -c 1 for -c of the OSU benchmarks"},
    {"--stepfactor", "",
     "it is a factor from one size to the next, as in nccl-tests, and no -f of the OSU "
     "benchmarks: give -J FILE for all that is measured"}};

/// Returns a hint for a parser error that names a flag and its value; empty if there is none.
std::string help_against(const std::string& error) {
  for (const auto& [flag, value, instead] : kMeant) {
    const bool is_value =
        value.empty() || error.find(" " + std::string(value) + " ") != std::string::npos;
    if (error.starts_with(flag) && is_value) return std::string("; ") + instead;
  }
  return {};
}

constexpr const char* kFooter = R"(
Prints the table of nccl-tests' all_reduce_perf, and after it
  wire    bytes that the busiest rank sends in a call
  ratio   2 (ranks - 1) / ranks of size, what a dense ring sends, over these bytes
  error   of a compressed call: L2 norm of (result - exact result) over that of the exact one, in the
          first call, when no residual has been added yet; later calls send what it left out.
          N/A if no timed call had that call's schedule
  lost    the same once the residuals of all ranks are added to the result: rounding alone
  schedule  of the timed calls; several are joined by '|'
A compressed call has no #wrong (N/A); elements of a dense one are wrong if they differ from the exact
result, of avg by more than 2 units in the last place: those of the last -c of the calls that were
timed. Every timed call has a new gradient and begins
at a barrier; time is the mean over the calls, of the slowest rank, with --memory device until its
stream has nothing left to do. Ranks of a node take its GPUs in turn, and may share them, but not over
NCCL. With --cudagraph N a timed call is N replays of one graph with one gradient, and counts as N;
several ranks can capture calls over NCCL alone. Only sums and averages of float, half and bfloat16 are
compressed, and only from Options::min_bytes on (64K); all else travels dense.
WINNOW_ variables hold where no flag says otherwise.

Examples:
  allreduce_perf -b 64K -e 64M -f 4 --compressor topk:0.01
  mpirun -n 4 allreduce_perf -b 8 -e 128M -f 2 --compressor none -J dense.json
  mpirun -n 4 allreduce_perf -b 8 -e 128M -f 2 --compressor none --transport tcp
  mpirun -n 4 allreduce_perf -b 1M -e 64M -f 4 --compressor topk:0.01 --reduce-scatter
  mpirun -n 4 allreduce_perf -b 1M -e 1G -f 4 --compressor topk:0.01 --memory device
  mpirun -n 4 allreduce_perf -b 1M -e 1G -f 4 --schedule gather --memory device --transport nccl
)";

std::string flag_of(const std::string& word) {
  if (word.starts_with("--")) return word.substr(0, word.find('='));
  return word.substr(0, 2);
}

/// Explains arguments that other benchmarks take and this one does not; empty if there are none.
std::string foreign(const std::vector<std::string>& words) {
  for (std::size_t i = 0; i < words.size(); ++i) {
    const std::string flag = flag_of(words[i]);
    const auto known = std::ranges::find_if(
        kForeign, [&](const Foreign& one) { return flag == one.brief || flag == one.full; });
    if (known == std::end(kForeign) || !flag.starts_with('-')) {
      return "unknown argument '" + words[i] + "'; --help lists what there is";
    }
    std::string value = words[i].substr(flag.size());
    if (value.starts_with('=')) value.erase(0, 1);
    if (value.empty() && i + 1 < words.size() && !words[i + 1].starts_with('-')) {
      value = words[++i];
    }
    const bool same = value.size() == 1 && known->same.find(value) != std::string_view::npos;
    if (!same) {
      const std::string brief = known->brief;
      return brief + (brief.empty() ? "" : ", ") + known->full + ": " + known->instead;
    }
  }
  return {};
}

/// Reads "-m MIN:MAX" of the OSU benchmarks, whose sizes double, or "-m 1" of nccl-tests. Returns
/// what is wrong, or nothing.
std::string read_range(const std::string& text, PerfSettings& settings) {
  const auto colon = text.find(':');
  if (text.empty() || text == "1") return {};
  if (colon == std::string::npos) {
    return "-m " + text +
           ": calls are not aggregated as by nccl-tests; leave it out. A range of sizes, as of the "
           "OSU benchmarks, is written -m MIN:MAX, or -b MIN -e MAX -f 2";
  }
  const CLI::AsSizeValue as_size(false);
  const auto read = [&](std::string word, std::uint64_t& bytes) {
    try {
      if (word.empty() || !as_size(word).empty()) return false;
      bytes = std::stoull(word);
      return true;
    } catch (const std::exception&) {  // of CLI11, for units
      return false;
    }
  };
  if (!read(text.substr(0, colon), settings.min_bytes) ||
      !read(text.substr(colon + 1), settings.max_bytes)) {
    return "-m takes MIN:MAX, such as 4:1M, not '" + text + "'";
  }
  settings.step_factor = 2;
  return {};
}

template <class Named>
std::vector<std::string> names_of(const std::vector<Named>& table) {
  std::vector<std::string> names = {"all"};
  for (const Named& line : table) names.push_back(line.name);
  return names;
}

template <class Named>
std::vector<Named> chosen(const std::vector<Named>& table, const std::string& name) {
  std::vector<Named> result;
  std::ranges::copy_if(table, std::back_inserter(result),
                       [&](const Named& line) { return name == "all" || name == line.name; });
  return result;
}

/// The conflict between settings that are valid one by one, or empty.
std::string contradiction(const PerfSettings& settings, bool under_mpirun) {
  if (settings.transport != own_transport(under_mpirun) && settings.transport != "nccl" &&
      settings.transport != "tcp") {
    return "--transport " + settings.transport + " is not how this was started: ranks are " +
           (under_mpirun ? "processes of MPI; leave it out"
                         : "threads; give mpirun -n, or leave it out");
  }
  if (settings.transport == "nccl" && settings.memory != "device") {
    return "--transport nccl has messages on a GPU; give --memory device";
  }
  if (settings.min_bytes > settings.max_bytes) {
    return "--minbytes " + std::to_string(settings.min_bytes) + " is above --maxbytes " +
           std::to_string(settings.max_bytes) + "; give both, the smaller as -b";
  }
  const bool several = settings.min_bytes < settings.max_bytes;
  if (several && settings.step_factor < 2 && settings.step_bytes == 0) {
    return "--stepbytes 0 never reaches --maxbytes; give -f 2, or -i of 1 or more";
  }
  if (several && settings.step_factor >= 2 && settings.min_bytes == 0) {
    return "--stepfactor never leaves --minbytes 0; give -b of 1 or more";
  }
  if (settings.graphs > 0 && settings.scatters) {
    return "--cudagraph captures allreduces alone; leave out --reduce-scatter";
  }
  if (settings.graphs > 0 && settings.memory != "device") {
    return "--cudagraph captures calls on a GPU; give --memory device";
  }
  return {};
}

/// The texts of arguments that stand for others.
struct Texts {
  std::string type = "float", op = "sum", range;
};

void add_options(CLI::App& app, PerfSettings& settings, Texts& texts) {
  auto& [type, op, range] = texts;
  const CLI::AsSizeValue size(false);
  app.add_option("-b,--minbytes", settings.min_bytes, "first size; K, M and G are powers of 1024")
      ->transform(size)
      ->default_str("32M");
  app.add_option("-e,--maxbytes", settings.max_bytes, "last size")
      ->transform(size)
      ->default_str("32M");
  app.add_option("-i,--stepbytes", settings.step_bytes, "from one size to the next")
      ->transform(size)
      ->default_str("1M");
  app.add_option("-f,--stepfactor", settings.step_factor, "likewise, and counts before -i")
      ->check(CLI::Range(1, 1 << 30));
  app.add_option("-n,--iters", settings.iters, "calls that are timed")
      ->check(CLI::Range(1, 1'000'000))
      ->capture_default_str();
  app.add_option("-w,--warmup_iters", settings.warmup_iters, "calls before; residuals settle there")
      ->check(CLI::Range(0, 1'000'000))
      ->capture_default_str();
  app.add_option("-c,--check", settings.check, "calls whose result is checked; 0: none")
      ->check(CLI::Range(0, 1'000'000))
      ->capture_default_str();
  app.add_option("-d,--datatype", type, "of the elements")
      ->check(CLI::IsMember(names_of(kTypes)))
      ->capture_default_str();
  app.add_option("-o,--op", op, "what becomes of them")
      ->check(CLI::IsMember(names_of(kOps)))
      ->capture_default_str();
  app.add_option("-m,--message-size,--agg_iters", range,
                 "MIN:MAX, as of the OSU benchmarks: -b MIN -e MAX -f 2");
  app.add_option("-N,--run_cycles", settings.cycles, "of the whole table; 0: for ever")
      ->check(CLI::Range(0, 1'000'000))
      ->capture_default_str();
  app.add_option(
         "-T,--timeout", settings.options.deadline,
         "seconds that a call waits for other ranks, as in WINNOW_DEADLINE; dense sums then "
         "go by Winnow's ring, which can end")
      ->check(CLI::Range(0.0, 1e9));
  app.add_option("-S,--report_timestamps", settings.timestamps,
                 "1: each row ends with the time of day, UTC")
      ->check(CLI::Range(0, 1))
      ->capture_default_str();
  app.add_option("-J,--output_file", settings.output_file, "the rows as JSON; overwritten");
  app.add_option("-t,--nthreads", settings.threads,
                 "ranks when started alone; under mpirun a rank is a process")
      ->check(CLI::Range(1, 1024))
      ->default_str("2");
  app.add_option(
         "-G,--cudagraph", settings.graphs,
         "with --memory device: times so many replays of a graph of a call for each; 0: none")
      ->check(CLI::Range(0, 1'000'000))
      ->capture_default_str();
  app.add_flag(
      "--reduce-scatter", settings.scatters,
      "times reduce_scatter; a size is that of a rank's input, of one shard for each rank");
  app.add_option("--memory", settings.memory, "that buckets lie in")
      ->check(CLI::IsMember({"host", "device"}))
      ->capture_default_str();
  app.add_option("--transport", settings.transport,
                 "of the messages: as the ranks were started; tcp; or nccl with --memory device")
      ->check(CLI::IsMember({"local", "mpi", "nccl", "tcp"}))
      ->capture_default_str();
  app.add_option("--compressor", settings.options.compressor, "as in WINNOW_COMPRESSOR")
      ->capture_default_str();
  app.add_option("--schedule", settings.options.schedule, "as in WINNOW_SCHEDULE")
      ->capture_default_str();
  app.add_option("--max-part", settings.options.max_part,
                 "elements, as in WINNOW_MAX_PART: longer buckets travel as several messages")
      ->check(CLI::Range(std::uint64_t{0}, Options::kMaxPart));
}

/// Names two arguments that exclude each other; empty if there are none.
std::string conflict(const CLI::App& app, const Texts& texts, const PerfSettings& settings,
                     bool under_mpirun) {
  const auto given = [&](const char* flag) { return app.count(flag) > 0; };
  const bool by_range = texts.range.find(':') != std::string::npos;
  if (by_range && (given("-b") || given("-e") || given("-f"))) {
    return "-m MIN:MAX stands for -b, -e and -f; give one or the other";
  }
  if (by_range && given("-i")) {
    return "-i is a step from one size to the next, as in nccl-tests; the number of timed calls, "
           "-i "
           "of the OSU benchmarks, is -n";
  }
  if (under_mpirun && given("--nthreads") && settings.threads != 1) {
    return "--nthreads is for ranks that are threads; under mpirun, mpirun -n says how many";
  }
  return {};
}

}  // namespace

int parse(int argc, char** argv, bool under_mpirun, PerfSettings& settings, std::string& words) {
  CLI::App app("Times allreduces as nccl-tests' all_reduce_perf does, and reduce-scatters");
  app.name("allreduce_perf");
  app.footer(kFooter);
  app.allow_extras();
  Texts texts;
  std::string wrong;
  try {
    settings.options = Options::from_environment();
    settings.arguments.assign(argv, argv + argc);
    settings.transport = own_transport(under_mpirun);
    add_options(app, settings, texts);
    app.parse(argc, argv);
    settings.options = comm::checked(settings.options);
    wrong = foreign(app.remaining());
    if (wrong.empty()) wrong = read_range(texts.range, settings);
    if (wrong.empty()) wrong = conflict(app, texts, settings, under_mpirun);
    if (wrong.empty()) wrong = contradiction(settings, under_mpirun);
    if (app.count("-i") > 0 && settings.min_bytes == settings.max_bytes) {
      settings.notes.emplace_back(
          "-i is the step from one size to the next, as in nccl-tests, and there is one size; the "
          "number of timed calls, -i of the OSU benchmarks, is -n");
    }
  } catch (const CLI::CallForHelp&) {
    words = app.help();
    return 0;
  } catch (const CLI::ParseError& error) {
    wrong = error.what();
    wrong += help_against(wrong);
  } catch (const Error& error) {
    wrong = error.what();
  }
  if (!wrong.empty()) {
    words = "allreduce_perf: " + wrong + "\n";
    return 2;
  }
  settings.types = chosen(kTypes, texts.type);
  settings.ops = chosen(kOps, texts.op);
  return -1;
}

}  // namespace winnow::bench
