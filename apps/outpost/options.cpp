#include "outpost/options.h"

#include <CLI/CLI.hpp>

namespace outpost::app {
namespace {

constexpr const char* kTargetGroup = "Where to";
constexpr const char* kExitCodes =
    "Exit codes: 0 done; 1 it did not work; 2 wrong options; 3 no connection, or it was lost;\n"
    "4 a time limit passed.";

void add_target(CLI::App& sub, Target& t) {
  const std::string group = kTargetGroup;
  sub.add_option("--key,-k", t.key, "Device type at the tracker, or the server's own key")
      ->group(group);
  sub.add_option("--tracker", t.tracker,
                 "Tracker as host:port; else TVM_TRACKER_HOST and TVM_TRACKER_PORT, else "
                 "127.0.0.1:9190")
      ->group(group);
  sub.add_option("--address,-a", t.address, "Server as host:port, without a tracker")->group(group);
  sub.add_option("--priority", t.priority, "Larger goes first at the tracker")
      ->capture_default_str()
      ->group(group);
  const auto seconds = CLI::Range(0.0, 1e9).description("");
  sub.add_option("--session-timeout", t.session_timeout,
                 "Seconds after which the server ends the session; 0: never")
      ->check(seconds)
      ->capture_default_str()
      ->group(group);
  sub.add_option("--wait", t.wait, "Seconds to wait for a free device; 0: without a limit")
      ->check(seconds)
      ->capture_default_str()
      ->group(group);
  sub.add_option("--timeout", t.timeout, "Seconds for one call on the server; 0: without a limit")
      ->check(seconds)
      ->capture_default_str()
      ->group(group);
  sub.add_flag("--verbose,-v", t.verbose, "Log each request on standard error")->group(group);
}

CLI::App* add_command(CLI::App& app, Parsed& parsed, bool first, const char* name, const char* text,
                      const std::string& example) {
  auto* sub = app.add_subcommand(name, text);
  sub->footer("Example: " + example);
  if (first) add_target(*sub, parsed.target);
  return sub;
}

void add_run_options(CLI::App& sub, RunCommand& run) {
  sub.add_option("library", run.library, "Compiled library: .so, or .o and .tar to link there")
      ->required();
  sub.add_option("function", run.function, "Function of the library, or of its Relax VM")
      ->required();
  sub.add_option("--input,-i", run.inputs,
                 "An argument: file.npy, float32[16,16] (random), 5, 2.5 or text:...; in order")
      ->allow_extra_args(false);
  sub.add_option("--output,-o", run.outputs,
                 "out.npy for the result, or out.npy=float32[16,16] for a tensor that the "
                 "function fills in; in order")
      ->allow_extra_args(false);
  sub.add_option("--device,-d", run.device, "Device of the tensors, as cpu:0 or cuda:1")
      ->capture_default_str();
  sub.add_option("--seed", run.seed, "For random inputs")->capture_default_str();
  sub.add_flag("--json", run.json, "Print the outcome as JSON");
}

void add_evaluator_options(CLI::App& sub, RunCommand& run) {
  const std::string group = "Measuring";
  const auto count = [&](const char* name, std::int64_t& value, const char* text,
                         std::int64_t least) {
    sub.add_option(name, value, text)
        ->check(CLI::Range(least, std::int64_t{1} << 40).description(""))
        ->capture_default_str()
        ->group(group);
  };
  count("--number,-n", run.number, "Calls in one measurement", 1);
  count("--repeat,-r", run.repeat, "Measurements", 1);
  count("--min-repeat-ms", run.min_repeat_ms, "Raise the number of calls to take so long", 0);
  count("--limit-zero-time-iterations", run.limit_zero_time_iterations,
        "Measurements of no time before giving up", 0);
  count("--cooldown-interval-ms", run.cooldown_interval_ms, "Pause between measurements", 0);
  count("--repeats-to-cooldown", run.repeats_to_cooldown, "Measurements between two pauses", 1);
  count("--cache-flush-bytes", run.cache_flush_bytes, "Memory copied before each measurement", 0);
  sub.add_option("--preproc", run.preproc,
                 "Function called before each measurement, e.g. cache_flush_cpu_non_first_arg")
      ->group(group);
}

void add_file_commands(CLI::App& app, Parsed& p, bool first) {
  auto* upload = add_command(app, p, first, "upload", "Send a file to the session's folder",
                             "outpost upload -k pi4 net.so + ls");
  upload->add_option("file", p.upload.file, "Local file")->required();
  upload->add_option("name", p.upload.name, "Its name there; else its own");

  auto* download = add_command(app, p, first, "download", "Bring a file from the session's folder",
                               "outpost download -a 10.0.0.4:9090 log.txt");
  download->add_option("name", p.download.name, "File there")->required();
  download->add_option("file", p.download.file,
                       "Local file, which appears only when it is whole; - is standard output");

  auto* list =
      add_command(app, p, first, "ls", "List the session's folder", "outpost ls -a 10.0.0.4:9090");
  list->add_option("path", p.list.path, "Folder there")->capture_default_str();

  auto* remove = add_command(app, p, first, "rm", "Remove files from the session's folder",
                             "outpost rm -a 10.0.0.4:9090 log.txt");
  remove->add_option("names", p.remove.names, "Files there")->required();

  auto* link = add_command(app, p, first, "link",
                           "Send an object or archive, link it there, bring the library back",
                           "outpost link -k pi4 net.tar net.so");
  link->add_option("file", p.link.file, "Local .o or .tar")->required();
  link->add_option("output", p.link.output, "Local library; else the file's name with .so");
}

/// What one command is told belongs on its command line; only the target may come from the
/// environment.
void keep_from_environment(CLI::App& app) {
  for (auto* sub : app.get_subcommands([](const CLI::App*) { return true; }))
    for (auto* option : sub->get_options())
      if (option->get_group() != kTargetGroup) option->configurable(false);
}

}  // namespace

void add_commands(CLI::App& app, Parsed& p, bool first) {
  app.require_subcommand(1);
  app.footer(std::string{"Commands joined by + share one session, whose folder goes when it ends:\n"
                         "  outpost upload -k pi4 net.so + ls + download net.so copy.so\n\n"} +
             kExitCodes);
  if (first) {
    auto* devices = add_command(app, p, first, "devices", "Show what the tracker knows",
                                "outpost devices --tracker lab:9190 --json");
    devices->add_flag("--json", p.devices.json, "JSON instead of a table");
    auto* ping = add_command(app, p, first, "ping",
                             "Measure the way to a server, or to the tracker without a key",
                             "outpost ping -a 10.0.0.4:9090");
    ping->add_option("--count,-c", p.ping.count, "Round trips")
        ->check(CLI::Range(1, 1'000'000).description(""))
        ->capture_default_str();
  }
  auto* run =
      add_command(app, p, first, "run", "Run a function of a library there",
                  "outpost run -k pi4 net.so add -i x.npy -i float32[4] -o y.npy=float32[4]");
  add_run_options(*run, p.run);
  auto* time = add_command(app, p, first, "time", "Measure a function of a library there",
                           "outpost time -k pi4 net.so add -i x.npy -o =float32[4] -n 100 -r 5");
  add_run_options(*time, p.time);
  add_evaluator_options(*time, p.time);
  p.time.measure = true;
  add_file_commands(app, p, first);
  keep_from_environment(app);
}

Command chosen_command(const CLI::App& app, const Parsed& p) {
  const auto given = [&](const char* name) { return app.got_subcommand(name); };
  if (given("run")) return p.run;
  if (given("time")) return p.time;
  if (given("upload")) return p.upload;
  if (given("download")) return p.download;
  if (given("ls")) return p.list;
  if (given("rm")) return p.remove;
  if (given("link")) return p.link;
  for (const auto* sub : app.get_subcommands()) {
    if (sub->get_name() == "devices") return p.devices;
    if (sub->get_name() == "ping") return p.ping;
  }
  return std::monostate{};
}

}  // namespace outpost::app
