#include "config/table.h"

#include <algorithm>
#include <cctype>

#include "base/error.h"
#include "base/limit_ranges.h"
#include "config/values.h"

namespace moorage::config {

using base::Code;
using base::Error;

namespace {

constexpr uint64_t kMiB = 1ULL << 20;
constexpr uint64_t kTiB = 1ULL << 40;
constexpr uint64_t kDay = 86'400;

using Values = std::vector<std::string>;

// A place in Settings: settings_table() names each once.
template <typename T>
using Place = T& (*)(Settings&);

template <typename T>
const T& read(Place<T> place, const Settings& settings) {
  return place(const_cast<Settings&>(settings));
}

template <typename T>
Setting integer(std::string_view name, Place<T> place, Range range, std::string_view help) {
  return {
      name,
      "",
      false,
      [=](Settings& s, const Values& v) { place(s) = static_cast<T>(parse_integer(v[0], range)); },
      [=](const Settings& s) { return std::to_string(read(place, s)); },
      help};
}

Setting bytes(std::string_view name, Place<uint64_t> place, Range range, std::string_view help) {
  return {name,
          "bytes",
          false,
          [=](Settings& s, const Values& v) { place(s) = parse_bytes(v[0], range); },
          [=](const Settings& s) { return print_bytes(read(place, s)); },
          help};
}

Setting seconds(std::string_view name, Place<int64_t> place, Range range, std::string_view help) {
  return {name,
          "s",
          false,
          [=](Settings& s, const Values& v) { place(s) = parse_seconds(v[0], range); },
          [=](const Settings& s) { return std::to_string(read(place, s)); },
          help};
}

Setting real(std::string_view name, Place<double> place, double least, double most,
             std::string_view help) {
  return {name,
          "",
          false,
          [=](Settings& s, const Values& v) { place(s) = parse_real(v[0], least, most); },
          [=](const Settings& s) { return print_real(read(place, s)); },
          help};
}

Setting flag(std::string_view name, Place<bool> place, std::string_view help) {
  return {name,
          "",
          false,
          [=](Settings& s, const Values& v) { place(s) = parse_flag(v[0]); },
          [=](const Settings& s) { return std::string(read(place, s) ? "true" : "false"); },
          help};
}

Setting path(std::string_view name, Place<std::string> place, bool may_be_empty,
             std::string_view help) {
  return {name,
          "",
          false,
          [=](Settings& s, const Values& v) {
            place(s) = may_be_empty && v[0].empty() ? std::string() : parse_path(v[0]);
          },
          [=](const Settings& s) { return read(place, s).empty() ? "\"\"" : read(place, s); },
          help};
}

Setting list(std::string_view name, Place<Values> place, std::string (*parse)(std::string_view),
             std::string_view help) {
  return {name,
          "",
          true,
          [=](Settings& s, const Values& v) {
            Values parsed;
            for (const std::string& text : v) parsed.push_back(parse(text));
            place(s) = parsed;
          },
          [=](const Settings& s) {
            std::string text;
            for (const std::string& item : read(place, s))
              text += (text.empty() ? "" : ", ") + item;
            return "[" + text + "]";
          },
          help};
}

Setting proxy(std::string_view name, Place<std::string> place, std::string_view help) {
  return {name,
          "",
          false,
          [=](Settings& s, const Values& v) { place(s) = parse_proxy(v[0]); },
          [=](const Settings& s) { return read(place, s).empty() ? "\"\"" : read(place, s); },
          help};
}

// A name of another thing: lower case letters, digits, - and _.
Setting word(std::string_view name, Place<std::string> place, const Values& choices,
             std::string_view help) {
  return {name,
          "",
          false,
          [=](Settings& s, const Values& v) {
            const bool good =
                !v[0].empty() && v[0].find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789-_") ==
                                     std::string::npos;
            const bool known =
                choices.empty() || std::find(choices.begin(), choices.end(), v[0]) != choices.end();
            std::string list;
            for (const std::string& choice : choices) list += (list.empty() ? ": " : ", ") + choice;
            if (!good || !known) {
              throw Error(Code::invalid_argument,
                          "\"" + v[0] + "\" is not a name that is allowed here" + list);
            }
            place(s) = v[0];
          },
          [=](const Settings& s) { return read(place, s); },
          help};
}

// What an engine calls one of its runtimes, as io.containerd.kata.v2; or nothing.
Setting runtime(std::string_view name, Place<std::string> place, std::string_view help) {
  return {name,
          "",
          false,
          [=](Settings& s, const Values& v) { place(s) = v[0].empty() ? "" : parse_runtime(v[0]); },
          [=](const Settings& s) { return read(place, s).empty() ? "\"\"" : read(place, s); },
          help};
}

#define MOORAGE_PLACE(member) ([](Settings & s) -> auto& { return s.member; })

std::vector<Setting> about_daemon() {
  return {
      path("store.directory", MOORAGE_PLACE(store.directory), false,
           "where everything durable is kept"),
      path(
          "store.image", MOORAGE_PLACE(store.image), true,
          "a file with a file system of ours that is mounted there, for NFS and others that cannot "
          "hold layers; made if there is none; empty: the directory's own file system"),
      bytes("store.image_bytes", MOORAGE_PLACE(store.image_bytes), {0, 1024 * kTiB},
            "how large that file is, from the beginning; more than it has: it grows"),
      bytes("store.reserve_bytes", MOORAGE_PLACE(store.reserve_bytes), {0, kTiB},
            "kept free so that the database can still write on a full disk"),
      bytes("store.min_free_bytes", MOORAGE_PLACE(store.min_free_bytes), {0, 1024 * kTiB},
            "below this nothing that takes space begins, below half of it writers are ended; 0 is "
            "1G, or 2 % of the disk if that is less"),
      integer<uint64_t>("store.min_free_inodes", MOORAGE_PLACE(store.min_free_inodes),
                        {0, 4'000'000'000},
                        "the same for files; 0 is 20000, or 2 % of those the disk can have"),
      word("store.disk_quota", MOORAGE_PLACE(store.disk_quota), {"auto", "watched"},
           "who holds workspaces below their disk limit: the file system's quotas where it has "
           "them, or only the daemon's watcher"),
      bytes("store.budget_bytes", MOORAGE_PLACE(store.budget_bytes), {0, 1024 * kTiB},
            "what mirrors, base trees and workspaces may take together; 0 is no limit"),
      integer<uint64_t>("store.budget_files", MOORAGE_PLACE(store.budget_files), {0, 4'000'000'000},
                        "the same in files; 0 is no limit"),
      path("api.socket", MOORAGE_PLACE(api.socket), false, "unix socket of the HTTP API"),
      word("api.group", MOORAGE_PLACE(api.group), {}, "group that may use the API"),
      integer<uint32_t>("api.max_connections", MOORAGE_PLACE(api.max_connections), {1, 65'536},
                        "connections at one time"),
      bytes("api.max_body_bytes", MOORAGE_PLACE(api.max_body_bytes), {kMiB, 1024 * kTiB},
            "largest streamed request body: a file, a bundle, standard input"),
      bytes("api.max_json_bytes", MOORAGE_PLACE(api.max_json_bytes), {4096, 64 * kMiB},
            "largest JSON request body"),
      word("log.level", MOORAGE_PLACE(log.level), {"debug", "info", "warning", "error"},
           "least severe events that are logged"),
      flag("log.json", MOORAGE_PLACE(log.json), "log JSON lines instead of text"),
      path("log.file", MOORAGE_PLACE(log.file), true, "log file; empty is standard error"),
      integer<uint32_t>("daemon.threads", MOORAGE_PLACE(daemon.threads), {2, 1024},
                        "threads for blocking work"),
      seconds("daemon.reconcile_interval_s", MOORAGE_PLACE(daemon.reconcile_interval_s), {1, 3600},
              "how often the database is compared with what is there"),
      path("libexec_directory", MOORAGE_PLACE(libexec_directory), false,
           "where moorage-launch and moorage-warden are"),
  };
}

std::vector<Setting> about_work() {
  return {
      list("repo.file_roots", MOORAGE_PLACE(repo.file_roots), parse_path,
           "directories below which local repositories may be cloned"),
      seconds("repo.fetch_deadline_s", MOORAGE_PLACE(repo.fetch_deadline_s), {1, 7 * kDay},
              "longest clone or fetch"),
      bytes("repo.max_fetch_bytes", MOORAGE_PLACE(repo.max_fetch_bytes), {kMiB, 1024 * kTiB},
            "largest pack that a clone or fetch may bring"),
      integer<uint32_t>("repo.checkout_threads", MOORAGE_PLACE(repo.checkout_threads), {0, 256},
                        "threads that write a base tree; 0 is as many as CPUs"),
      proxy("repo.https_proxy", MOORAGE_PLACE(repo.https_proxy),
            "proxy on the way to https repositories; empty is none"),
      list("repo.no_proxy", MOORAGE_PLACE(repo.no_proxy), parse_host,
           "hosts that are reached without the proxy; .example.com is all below it"),
      path("repo.ca_file", MOORAGE_PLACE(repo.ca_file), true,
           "certificates for https repositories, instead of the system's; empty is the system's"),
      bytes("repo.budget_bytes", MOORAGE_PLACE(repo.budget_bytes), {0, 1024 * kTiB},
            "what one repository may take: mirror, base trees, its workspaces; 0 is no limit"),
      integer<uint32_t>("ids.disk_first_id", MOORAGE_PLACE(ids.disk_first_id),
                        {65'536, 4'294'836'224},
                        "first of 65537 owner ids on disk; no host user may have one"),
      integer<uint32_t>("ids.sandbox_first_id", MOORAGE_PLACE(ids.sandbox_first_id),
                        {65'536, 2'147'418'112},
                        "first host id of the pool that sandboxes run under"),
      integer<uint32_t>("ids.sandbox_slots", MOORAGE_PLACE(ids.sandbox_slots), {1, 65'000},
                        "ranges of 65536 ids in that pool: sandboxes at one time"),
      word("sandbox.backend", MOORAGE_PLACE(sandbox.backend), {}, "backend of new workspaces"),
      flag("sandbox.allow_process_backend", MOORAGE_PLACE(sandbox.allow_process_backend),
           "allow the backend that isolates nothing"),
      bytes("sandbox.memory_bytes", MOORAGE_PLACE(sandbox.memory_bytes),
            {base::kLeastMemoryBytes, 1024 * kTiB}, "memory of a sandbox's commands together"),
      real("sandbox.cpus", MOORAGE_PLACE(sandbox.cpus), base::kLeastCpus, base::kMostCpus,
           "CPUs of a sandbox"),
      integer<uint32_t>("sandbox.pids", MOORAGE_PLACE(sandbox.pids), {16, 4'194'304},
                        "processes and threads of a sandbox"),
      seconds("sandbox.start_deadline_s", MOORAGE_PLACE(sandbox.start_deadline_s), {1, 3600},
              "longest start of a sandbox"),
      seconds("sandbox.stop_grace_s", MOORAGE_PLACE(sandbox.stop_grace_s), {0, 3600},
              "time between the request to end and the kill"),
      flag("sandbox.sudo", MOORAGE_PLACE(sandbox.sudo),
           "sudo without password inside the sandbox, where its backend has a root"),
      integer<uint32_t>("sandbox.cpu_weight", MOORAGE_PLACE(sandbox.cpu_weight), {1, 10'000},
                        "share of all sandboxes together when the CPUs are short; a service of the "
                        "host has 100"),
      bytes("sandbox.disk_rate_bytes", MOORAGE_PLACE(sandbox.disk_rate_bytes), {0, kTiB},
            "bytes a second, each way, of one sandbox on the store's disk; 0 is no limit"),
      flag("sandbox.nested_namespaces", MOORAGE_PLACE(sandbox.nested_namespaces),
           "let commands make user namespaces and mount in them; more of the kernel is in reach"),
      seconds("sandbox.idle_stop_s", MOORAGE_PLACE(sandbox.idle_stop_s), {0, 366 * kDay},
              "an idle sandbox is stopped after; the next command starts it again; 0 is never"),
      seconds("sandbox.max_lifetime_s", MOORAGE_PLACE(sandbox.max_lifetime_s), {0, 366 * kDay},
              "any sandbox is stopped after, busy or not; 0 is never"),
      path("docker.socket", MOORAGE_PLACE(docker.socket), false,
           "unix socket of the container engine of backend docker, or of Podman"),
      runtime(
          "docker.runtime", MOORAGE_PLACE(docker.runtime),
          "that engine's runtime for sandboxes that name none, like crun; empty is its own choice"),
      bytes("exec.output_limit_bytes", MOORAGE_PLACE(exec.output_limit_bytes),
            {65'536, 1024 * kTiB},
            "output of one command that is kept, on disk; the middle of a longer one goes"),
      seconds("exec.default_timeout_s", MOORAGE_PLACE(exec.default_timeout_s), {0, 366 * kDay},
              "time limit of commands that name none; 0 is none"),
      seconds("workspace.undelete_window_s", MOORAGE_PLACE(workspace.undelete_window_s),
              {0, 3660 * kDay},
              "how long a deleted workspace can be undeleted; time with the machine off does not "
              "count"),
      bytes("workspace.output_limit_bytes", MOORAGE_PLACE(workspace.output_limit_bytes),
            {0, 1024 * kTiB},
            "output of all commands of a workspace that is kept; the oldest goes; 0 is no limit"),
      seconds("workspace.output_keep_s", MOORAGE_PLACE(workspace.output_keep_s), {0, 3660 * kDay},
              "output of a command is kept so long after its end; 0 is for ever; time with the "
              "machine off does not count"),
      bytes("workspace.disk_limit_bytes", MOORAGE_PLACE(workspace.disk_limit_bytes),
            {base::kLeastDiskBytes, 1024 * kTiB, true},
            "disk of a new workspace that names no limit; 0 is none"),
      integer<uint64_t>("workspace.disk_limit_files", MOORAGE_PLACE(workspace.disk_limit_files),
                        {base::kLeastDiskFiles, 4'000'000'000, true},
                        "the same in files; 0 is none"),
      bytes("user.budget_bytes", MOORAGE_PLACE(user.budget_bytes), {0, 1024 * kTiB},
            "what the workspaces of one user may take together; 0 is no limit"),
      seconds("gc.archive_after_s", MOORAGE_PLACE(gc.archive_after_s), {0, 3660 * kDay},
              "how long a workspace rests before collection may archive it; time with the machine "
              "off does not count"),
      seconds("gc.keep_unused_s", MOORAGE_PLACE(gc.keep_unused_s), {0, 366 * kDay},
              "how long collection leaves alone what was made or asked for"),
      path(
          "archive.directory", MOORAGE_PLACE(archive.directory), true,
          "where archives are kept, perhaps on another file system; empty is archive in the store"),
      integer<uint32_t>("archive.level", MOORAGE_PLACE(archive.level), {1, 19},
                        "how hard archives are compressed, as zstd counts it"),
      integer<uint32_t>("archive.threads", MOORAGE_PLACE(archive.threads), {1, 64},
                        "threads that compress one archive"),
      bytes("archive.import_max_bytes", MOORAGE_PLACE(archive.import_max_bytes),
            {kMiB, 1024 * kTiB}, "largest archive that may be imported, unpacked"),
      path(
          "replica.directory", MOORAGE_PLACE(replica.directory), true,
          "where a copy of the store follows, on another disk or NFS, root's alone; empty is none"),
      seconds("replica.interval_s", MOORAGE_PLACE(replica.interval_s), {1, 3600},
              "how often what is new goes there; a round that takes long is followed by a rest as "
              "long"),
      flag("replica.same_disk", MOORAGE_PLACE(replica.same_disk),
           "let that copy be on the store's own disk, which does not outlive that"),
      seconds("workspace.sync_interval_s", MOORAGE_PLACE(workspace.sync_interval_s), {1, 3600},
              "longest time that written files stay unsynced"),
  };
}

#undef MOORAGE_PLACE

}  // namespace

const std::vector<Setting>& settings_table() {
  static const std::vector<Setting> table = [] {
    std::vector<Setting> all = about_daemon();
    for (Setting& setting : about_work()) all.push_back(std::move(setting));
    return all;
  }();
  return table;
}

const Setting* find_setting(std::string_view name) {
  for (const Setting& setting : settings_table()) {
    if (setting.name == name) return &setting;
  }
  return nullptr;
}

std::vector<std::string> setting_groups() {
  std::vector<std::string> groups;
  for (const Setting& setting : settings_table()) {
    const size_t dot = setting.name.find('.');
    if (dot == std::string_view::npos) continue;
    const std::string group(setting.name.substr(0, dot));
    if (std::find(groups.begin(), groups.end(), group) == groups.end()) groups.push_back(group);
  }
  return groups;
}

std::string variable_of(const Setting& setting) {
  std::string name = "MOORAGE_";
  for (const char c : setting.name) {
    name += c == '.' ? '_' : static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  }
  return name;
}

}  // namespace moorage::config
