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

// Accessor of a field of Settings; settings_table() names each field once.
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

// A name: lower case letters, digits, - and _.
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
                          "\"" + v[0] + "\" is not an allowed name" + list);
            }
            place(s) = v[0];
          },
          [=](const Settings& s) { return read(place, s); },
          help};
}

// An engine's name for a runtime, such as io.containerd.kata.v2; or empty.
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
          "a file system image to mount there, for NFS and others that cannot hold layers; "
          "created if missing; empty: use the directory's own file system"),
      bytes("store.image_bytes", MOORAGE_PLACE(store.image_bytes), {0, 1024 * kTiB},
            "size of that image, allocated at once; raise it to grow the image"),
      bytes("store.reserve_bytes", MOORAGE_PLACE(store.reserve_bytes), {0, kTiB},
            "reserved so that the database can still write on a full disk"),
      bytes("store.min_free_bytes", MOORAGE_PLACE(store.min_free_bytes), {0, 1024 * kTiB},
            "with less free space, work that needs space does not start, and at half of it writers "
            "are ended; 0: 1G, or 2 % of the disk if less"),
      integer<uint64_t>("store.min_free_inodes", MOORAGE_PLACE(store.min_free_inodes),
                        {0, 4'000'000'000},
                        "the same for inodes; 0: 20000, or 2 % of the disk's inodes if less"),
      word("store.disk_quota", MOORAGE_PLACE(store.disk_quota), {"auto", "watched"},
           "enforcement of disk limits: auto uses the file system's quotas where available; "
           "watched uses only the daemon's watcher"),
      bytes("store.budget_bytes", MOORAGE_PLACE(store.budget_bytes), {0, 1024 * kTiB},
            "total of mirrors, base trees and workspaces; 0: no limit"),
      integer<uint64_t>("store.budget_files", MOORAGE_PLACE(store.budget_files), {0, 4'000'000'000},
                        "the same in inodes; 0: no limit"),
      path("api.socket", MOORAGE_PLACE(api.socket), false, "unix socket of the HTTP API"),
      word("api.group", MOORAGE_PLACE(api.group), {}, "group that may use the API"),
      integer<uint32_t>("api.max_connections", MOORAGE_PLACE(api.max_connections), {1, 65'536},
                        "concurrent connections"),
      bytes("api.max_body_bytes", MOORAGE_PLACE(api.max_body_bytes), {kMiB, 1024 * kTiB},
            "largest streamed request body: a file, a bundle, standard input"),
      bytes("api.max_json_bytes", MOORAGE_PLACE(api.max_json_bytes), {4096, 64 * kMiB},
            "largest JSON request body"),
      word("log.level", MOORAGE_PLACE(log.level), {"debug", "info", "warning", "error"},
           "lowest level to log"),
      flag("log.json", MOORAGE_PLACE(log.json), "log JSON lines instead of text"),
      path("log.file", MOORAGE_PLACE(log.file), true, "log file; empty: standard error"),
      integer<uint32_t>("daemon.threads", MOORAGE_PLACE(daemon.threads), {2, 1024},
                        "threads for blocking operations"),
      seconds("daemon.reconcile_interval_s", MOORAGE_PLACE(daemon.reconcile_interval_s), {1, 3600},
              "interval for comparing the database with the actual state"),
      path("libexec_directory", MOORAGE_PLACE(libexec_directory), false,
           "directory of moorage-launch and moorage-warden"),
  };
}

std::vector<Setting> about_work() {
  return {
      list("repo.file_roots", MOORAGE_PLACE(repo.file_roots), parse_path,
           "directories below which local repositories may be cloned"),
      seconds("repo.fetch_deadline_s", MOORAGE_PLACE(repo.fetch_deadline_s), {1, 7 * kDay},
              "time limit of a clone or fetch"),
      bytes("repo.max_fetch_bytes", MOORAGE_PLACE(repo.max_fetch_bytes), {kMiB, 1024 * kTiB},
            "largest pack in a clone or fetch"),
      integer<uint32_t>("repo.checkout_threads", MOORAGE_PLACE(repo.checkout_threads), {0, 256},
                        "threads that write a base tree; 0: number of CPUs"),
      proxy("repo.https_proxy", MOORAGE_PLACE(repo.https_proxy),
            "proxy for https repositories; empty: none"),
      list("repo.no_proxy", MOORAGE_PLACE(repo.no_proxy), parse_host,
           "hosts contacted without the proxy; .example.com includes subdomains"),
      path("repo.ca_file", MOORAGE_PLACE(repo.ca_file), true,
           "PEM file of certificates for https repositories; empty: the system's"),
      bytes("repo.budget_bytes", MOORAGE_PLACE(repo.budget_bytes), {0, 1024 * kTiB},
            "total of one repository: mirror, base trees, its workspaces; 0: no limit"),
      integer<uint32_t>("ids.disk_first_id", MOORAGE_PLACE(ids.disk_first_id),
                        {65'536, 4'294'836'224},
                        "first of 65537 owner ids on disk; must not belong to host users"),
      integer<uint32_t>("ids.sandbox_first_id", MOORAGE_PLACE(ids.sandbox_first_id),
                        {65'536, 2'147'418'112},
                        "first host id of the pool for sandboxes"),
      integer<uint32_t>("ids.sandbox_slots", MOORAGE_PLACE(ids.sandbox_slots), {1, 65'000},
                        "ranges of 65536 ids in that pool, one per sandbox"),
      word("sandbox.backend", MOORAGE_PLACE(sandbox.backend), {}, "backend of new workspaces"),
      flag("sandbox.allow_process_backend", MOORAGE_PLACE(sandbox.allow_process_backend),
           "allow the backend without isolation"),
      bytes("sandbox.memory_bytes", MOORAGE_PLACE(sandbox.memory_bytes),
            {base::kLeastMemoryBytes, 1024 * kTiB}, "total memory of a sandbox's commands"),
      real("sandbox.cpus", MOORAGE_PLACE(sandbox.cpus), base::kLeastCpus, base::kMostCpus,
           "CPUs of a sandbox"),
      integer<uint32_t>("sandbox.pids", MOORAGE_PLACE(sandbox.pids), {16, 4'194'304},
                        "processes and threads of a sandbox"),
      seconds("sandbox.start_deadline_s", MOORAGE_PLACE(sandbox.start_deadline_s), {1, 3600},
              "time limit of a sandbox's start"),
      seconds("sandbox.stop_grace_s", MOORAGE_PLACE(sandbox.stop_grace_s), {0, 3600},
              "grace period before a stop kills the processes"),
      flag("sandbox.sudo", MOORAGE_PLACE(sandbox.sudo),
           "sudo without password inside the sandbox, if its backend supports root"),
      integer<uint32_t>("sandbox.cpu_weight", MOORAGE_PLACE(sandbox.cpu_weight), {1, 10'000},
                        "CPU weight of all sandboxes together; a host service has 100"),
      bytes("sandbox.disk_rate_bytes", MOORAGE_PLACE(sandbox.disk_rate_bytes), {0, kTiB},
            "bytes per second, each way, of one sandbox on the store's disk; 0: no limit"),
      flag("sandbox.nested_namespaces", MOORAGE_PLACE(sandbox.nested_namespaces),
           "allow user namespaces and mounts in them; exposes more of the kernel"),
      seconds("sandbox.idle_stop_s", MOORAGE_PLACE(sandbox.idle_stop_s), {0, 366 * kDay},
              "stop a sandbox idle for this long; the next command restarts it; 0: never"),
      seconds("sandbox.max_lifetime_s", MOORAGE_PLACE(sandbox.max_lifetime_s), {0, 366 * kDay},
              "stop any sandbox after this long, even if busy; 0: never"),
      path("docker.socket", MOORAGE_PLACE(docker.socket), false,
           "unix socket of Docker or Podman, for backend docker"),
      runtime(
          "docker.runtime", MOORAGE_PLACE(docker.runtime),
          "default runtime in that engine, such as crun; empty: the engine's default"),
      bytes("exec.output_limit_bytes", MOORAGE_PLACE(exec.output_limit_bytes),
            {65'536, 1024 * kTiB},
            "kept output of one command, on disk; of longer output the middle is dropped"),
      seconds("exec.default_timeout_s", MOORAGE_PLACE(exec.default_timeout_s), {0, 366 * kDay},
              "default time limit of commands; 0: none"),
      seconds("workspace.undelete_window_s", MOORAGE_PLACE(workspace.undelete_window_s),
              {0, 3660 * kDay},
              "undo window of a deleted workspace; time with the machine off does not count"),
      bytes("workspace.output_limit_bytes", MOORAGE_PLACE(workspace.output_limit_bytes),
            {0, 1024 * kTiB},
            "kept output of all commands of a workspace; drops the oldest; 0: no limit"),
      seconds("workspace.output_keep_s", MOORAGE_PLACE(workspace.output_keep_s), {0, 3660 * kDay},
              "delete a command's output this long after its end; 0: never; time with the "
              "machine off does not count"),
      bytes("workspace.disk_limit_bytes", MOORAGE_PLACE(workspace.disk_limit_bytes),
            {base::kLeastDiskBytes, 1024 * kTiB, true},
            "default disk limit of a workspace; 0: none"),
      integer<uint64_t>("workspace.disk_limit_files", MOORAGE_PLACE(workspace.disk_limit_files),
                        {base::kLeastDiskFiles, 4'000'000'000, true},
                        "the same in inodes; 0: none"),
      bytes("user.budget_bytes", MOORAGE_PLACE(user.budget_bytes), {0, 1024 * kTiB},
            "total of one user's workspaces; 0: no limit"),
      seconds("gc.archive_after_s", MOORAGE_PLACE(gc.archive_after_s), {0, 3660 * kDay},
              "idle time after which collection may archive a workspace; time with the machine "
              "off does not count"),
      seconds("gc.keep_unused_s", MOORAGE_PLACE(gc.keep_unused_s), {0, 366 * kDay},
              "collection spares objects created or used within this time"),
      path(
          "archive.directory", MOORAGE_PLACE(archive.directory), true,
          "directory for archives, perhaps on another file system; empty: archive in the store"),
      integer<uint32_t>("archive.level", MOORAGE_PLACE(archive.level), {1, 19},
                        "zstd compression level of archives"),
      integer<uint32_t>("archive.threads", MOORAGE_PLACE(archive.threads), {1, 64},
                        "threads that compress one archive"),
      bytes("archive.import_max_bytes", MOORAGE_PLACE(archive.import_max_bytes),
            {kMiB, 1024 * kTiB}, "largest archive that may be imported, unpacked"),
      path(
          "replica.directory", MOORAGE_PLACE(replica.directory), true,
          "directory for a copy of the store, on another disk or NFS, root only; empty: none"),
      seconds("replica.interval_s", MOORAGE_PLACE(replica.interval_s), {1, 3600},
              "interval between updates of that copy; a slow update delays the next by its length"),
      flag("replica.same_disk", MOORAGE_PLACE(replica.same_disk),
           "allow that copy on the store's own disk, where it is lost with the disk"),
      seconds("workspace.sync_interval_s", MOORAGE_PLACE(workspace.sync_interval_s), {1, 3600},
              "sync written files after at most this time"),
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
