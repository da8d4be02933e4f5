// `info`, `config`, `version`, `doctor`, `rescue export`, `restore-store`: the host, the
// daemon and its store.
#include <fcntl.h>
#include <unistd.h>

#include <climits>

#include "base/os/fd.h"
#include "base/os/files.h"
#include "base/spelling.h"
#include "cli/commands.h"
#include "cli/views/workspace_view.h"

namespace moorage::cli {
namespace {

// A machine of a backend elsewhere.
std::string host_text(const Json& host) {
  std::string text = host.text("name") + ": " + std::to_string(host.number("sandboxes")) + " of " +
                     count_of(host.number("max_sandboxes"), "sandbox");
  if (host.has("paused")) text += " and " + std::to_string(host.number("paused")) + " paused";
  if (host.has("on_stop"))
    text += host.text("on_stop") == "pause" ? ", a stop pauses the machine"
                                            : ", a stop ends the machine";
  if (host.has("not_paused"))
    text += " (the last one could not be paused, and was ended: " + host.text("not_paused") + ")";
  if (host.has("sent_again"))
    text += ", " + count_of(host.number("sent_again"), "file") + " lost in a pause and sent again";
  if (host.has("overlay")) text += ", " + search_text(host.text("overlay"));
  if (host.has("limits")) text += ", " + held_text(host.at("limits"));
  if (host.has("last_contact")) text += ", answered at " + host.text("last_contact");
  if (host.has("last_error")) text += "; the last try failed: " + host.text("last_error");
  return text;
}

int print_info(Context& context) {
  const auto info = context.parse_or_print(context.api().get("/v1/info"));
  if (!info) return 0;
  std::string text;
  const auto line = [&](const std::string& label, const std::string& about) {
    text += label_lines(label, about, context.terminal.columns);
  };
  line("moorage", info->text("version") +
                      (info->has("pid") ? "   daemon: pid " + info->text("pid") : std::string()));
  if (info->has("rescue")) line("RESCUE", info->text("rescue"));
  line("store", info->text("store") + " (" + info->text("store_id", "id unknown") + "), " +
                    size_text(*info, "space.free_bytes") + " free of " +
                    size_text(*info, "space.total_bytes"));
  line("host", "kernel " + info->text("kernel") + ", cgroup " + info->text("cgroup"));
  line("now", count_of(info->number("counts.workspaces"), "workspace") + ", " +
                  count_of(info->number("counts.sandboxes"), "sandbox") + ", " +
                  count_of(info->number("counts.execs_running"), "running command"));
  for (const Json& backend : info->items("backends")) {
    const bool usable = backend.flag("usable");
    std::string runtimes;
    for (const auto& [name, isolation] : backend.members("runtimes"))
      runtimes += (runtimes.empty() ? "; runtimes: " : ", ") + name + " (" + isolation + ")";
    line("backend", backend.text("name") + ": " +
                        (usable ? backend.text("isolation") + runtimes
                                : "unusable: " + backend.text("reason")));
    for (const Json& host : backend.items("hosts")) line("", host_text(host));
  }
  if (info->has("policy")) {
    const auto rules = info->number("policy.rules");
    line("policy", rules == 0 ? "no rules" : count_of(rules, "rule"));
    for (const Json& rule : info->items("policy.yours"))
      line("", rule.text("name") + ": " + rule.text("text"));
  }
  if (const Json replica = info->at("replica"); replica.is_object()) {
    line("copy", off_host_text(replica) + ", in " + replica.text("directory"));
    if (replica.has("problem")) line("", replica.text("problem"));
    if (replica.has("hint")) line("", "hint: " + replica.text("hint"));
    for (const Json& note : replica.items("notes")) line("", note.text());
  }
  for (const Json& check : info->items("checks")) {
    const bool ok = check.flag("ok");
    line(ok ? "ok" : "MISSING", check.text("name") + ": " + check.text("text"));
    if (!check.text("hint").empty()) line("", "hint: " + check.text("hint"));
  }
  context.print(text);
  return 0;
}

// All settings, a section ("sandbox") or one of them.
void print_config(Context& context, const std::string& wanted) {
  const std::string answer = context.api().get("/v1/config");
  const Json config = Json::parse(answer);
  std::vector<Json> settings;
  std::vector<std::string> names;
  for (const Json& setting : config.items()) {
    const std::string name = setting.text("name");
    names.push_back(name);
    if (wanted.empty() || name == wanted || name.starts_with(wanted + ".") ||
        name.starts_with(wanted + "["))
      settings.push_back(setting);
  }
  if (settings.empty() && !wanted.empty()) {
    const auto meant = base::nearest_spelling(wanted, {names.begin(), names.end()});
    throw Error(
        Code::not_found, "there is no setting '" + wanted + "'",
        meant ? "did you mean: moorage config show " + *meant : "moorage config show lists them");
  }
  if (context.json && wanted.empty()) return context.print_json(answer);
  if (context.json) {
    std::string list;
    for (const Json& setting : settings) list += (list.empty() ? "[" : ",") + setting.dump();
    return context.print_json(list + "]");
  }
  Table table({"SETTING", shrinks("VALUE"), shrinks("FROM")});
  for (const Json& setting : settings) {
    std::string value = setting.text("value");
    const bool has_unit = value.empty() || !isdigit(static_cast<unsigned char>(value.back()));
    if (!has_unit && !setting.text("unit").empty()) value.append(" ").append(setting.text("unit"));
    table.add({setting.text("name"), value, setting.text("source")});
  }
  context.print_table(table);
}

int reload_config(Context& context) {
  const auto done = context.parse_or_print(context.api().send("POST", "/v1/config/reload"));
  if (!done) return 0;
  context.print_label("policy", count_of(done->number("rules"), "rule") + " in force");
  std::string names;
  for (const std::string& name : done->texts("need_restart"))
    names += (names.empty() ? "" : ", ") + name;
  if (!names.empty())
    context.note("these settings differ in the file and need a restart: " + names);
  return 0;
}

// Works without a daemon: people type it first when something is wrong.
int print_version(Context& context) {
  std::string daemon;
  try {
    daemon = Json::parse(context.api().get("/v1/info")).text("version");
  } catch (const Error&) {
    // An unreachable daemon is a valid answer here.
  }
  JsonObject json;
  json.add("version", MOORAGE_VERSION);
  if (!daemon.empty()) json.add("daemon_version", daemon);
  if (context.json) {
    context.print_json(json);
    return 0;
  }
  context.print("moorage " MOORAGE_VERSION ", daemon " +
                (daemon.empty() ? "not reachable" : printable(daemon)) + "\n");
  return 0;
}

struct DoctorOptions {
  bool fix = false;
  bool deep = false;

  void declare(Options& options) {
    options.flag({"--fix", "", "Repair everything that is safe to repair"}, fix);
    options.flag({"--deep", "", "Check every git object, file and record; takes minutes"}, deep);
  }
};

// One line for each finding and one for its repair.
std::string page(const Json& diagnosis, bool fix, size_t columns) {
  std::string text;
  int64_t mendable = 0;
  for (const Json& finding : diagnosis.items("findings")) {
    const bool mended = finding.flag("mended");
    text +=
        label_lines(mended ? "repaired" : finding.text("severity"), finding.text("text"), columns);
    const std::string mend = finding.text("mend");
    const std::string command = finding.text("command");
    if (!mend.empty()) text += label_lines("", (fix ? "" : "--fix: ") + mend, columns);
    if (!mended && !command.empty()) text += label_lines("", "run: " + command, columns);
    if (!mended && !mend.empty()) ++mendable;
  }
  if (text.empty()) text = label_line("clean", "database, disk, mounts, backends and git agree");
  if (diagnosis.has("storage")) text += label_lines("storage", diagnosis.text("storage"), columns);
  if (mendable > 0 && !fix) text += label_line("next", "moorage doctor --fix");
  return text;
}

// Exit code 0 means clean.
int diagnose(Context& context, const DoctorOptions& options) {
  const std::string answer =
      options.fix
          ? context.api().send("POST", "/v1/doctor", JsonObject().add("deep", options.deep).str())
          : context.api().get(options.deep ? "/v1/doctor?deep=1" : "/v1/doctor");
  const Json diagnosis = Json::parse(answer);
  context.json ? context.print_json(answer)
               : context.print(page(diagnosis, options.fix, context.terminal.columns));
  return diagnosis.flag("clean") ? 0 : 1;
}

struct ExportOptions {
  std::string name;
  std::string file;

  void declare(Options& options) {
    options.argument({"NAME", "", "Name or id of the workspace"}, name);
    options.argument({"FILE", "", "The archive to write (.tar.zst)"}, file);
  }
};

// Saves a workspace from the disk to a local file while the daemon is in rescue mode. A partial
// file stays, because it may be the only copy.
void rescue(Context& context, const ExportOptions& options) {
  Fd file;
  uint64_t bytes = 0;
  try {
    context.api().download(
        "/v1/rescue/workspaces/" + percent_encode(options.name), [&](std::string_view piece) {
          if (!file) {
            file = base::open_file(options.file, O_WRONLY | O_CREAT | O_EXCL, 0600);
          }
          base::write_all(file.get(), piece);
          bytes += piece.size();
        });
    if (file) base::sync_file(file.get(), options.file);
  } catch (Error& error) {
    if (bytes > 0) {
      error.add_context(options.file + " has only the first " + format_size(bytes) + " of " +
                        options.name);
    }
    throw;
  }
  if (context.json) {
    return context.print_json(
        JsonObject().add("file", options.file).add("bytes", static_cast<int64_t>(bytes)));
  }
  context.print(printable(options.name) + " is in " + printable(options.file) + ", " +
                format_size(bytes) + "\nlist it: tar --zstd --warning=no-unknown-keyword -tf " +
                printable(join_command({options.file})) +
                "\nif some parts could not be read, missing.txt inside lists them\n");
}

struct RestoreOptions {
  std::string replica;
  std::string store;
  std::string config;

  void declare(Options& options) {
    options.argument({"DIR", "", "The replica.directory of the lost store"}, replica);
    options.value({"--store", "DIR", "An empty directory; default: store.directory"}, store);
    options.value({"--config", "FILE", "The configuration file of the new daemon"}, config);
  }
};

// Beside this program, or where the package installs it.
std::string find_daemon() {
  std::string self(PATH_MAX, '\0');
  const ssize_t length = readlink("/proc/self/exe", self.data(), self.size());
  self.resize(static_cast<size_t>(base::check(length, "find this program")));
  const std::string directory = self.substr(0, self.rfind('/'));
  for (const std::string& place : {directory + "/mooraged", directory + "/../sbin/mooraged"}) {
    if (base::path_exists(place)) return place;
  }
  throw Error(Code::not_found, "mooraged is not installed beside this program",
              "install it; then: mooraged --restore-store DIR");
}

// It reports errors under our name.
[[noreturn]] void become_daemon(const std::vector<std::string>& arguments) {
  const std::string program = find_daemon();
  std::vector<std::string> words{"moorage"};
  words.insert(words.end(), arguments.begin(), arguments.end());
  std::vector<char*> argv;
  for (auto& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  execv(program.c_str(), argv.data());
  base::throw_errno("start " + program);
}

// Needs no running daemon: mooraged, which owns the store's lock, ids and layers, does the work.
void restore(Context&, const RestoreOptions& options) {
  std::vector<std::string> words{"--restore-store", options.replica};
  if (!options.config.empty()) words.insert(words.end(), {"--config", options.config});
  if (!options.store.empty())
    words.insert(words.end(), {"--set", "store.directory=" + options.store});
  become_daemon(words);
}

// Needs no running daemon, either.
void check_config(Context&, const std::string& file) {
  std::vector<std::string> words{"--check-config"};
  if (!file.empty()) words.insert(words.end(), {"--config", file});
  become_daemon(words);
}

}  // namespace

Action info_command(Options&) { return print_info; }

Action config_show_command(Options& options) {
  auto wanted = std::make_shared<std::string>();
  options.optional_argument({"SETTING", "", "One setting, or the first word of several"}, *wanted);
  return run_with(wanted, print_config);
}

Action config_check_command(Options& options) {
  auto file = std::make_shared<std::string>();
  options.optional_argument({"FILE", "PATH", "Default: /etc/moorage/moorage.yaml"}, *file);
  return run_with(file, check_config);
}

Action config_reload_command(Options&) { return reload_config; }
Action version_command(Options&) { return print_version; }
Action doctor_command(Options& options) { return run_with<DoctorOptions>(options, diagnose); }
Action rescue_export_command(Options& options) { return run_with<ExportOptions>(options, rescue); }

Action restore_store_command(Options& options) {
  return run_with<RestoreOptions>(options, restore);
}

}  // namespace moorage::cli
