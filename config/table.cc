#include "config/table.h"

#include <algorithm>
#include <cctype>

#include "base/error.h"
#include "base/limit_ranges.h"
#include "base/size_text.h"
#include "config/values.h"

namespace moorage::config {

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

template <typename T, typename Parse, typename Print>
Setting one(std::string_view name, Place<T> place, std::string_view unit, Parse parse, Print print,
            std::string_view help) {
  return {name,
          unit,
          false,
          [=](Settings& s, const Values& v) { place(s) = static_cast<T>(parse(v[0])); },
          [=](const Settings& s) { return print(read(place, s)); },
          help};
}

std::string or_quotes(const std::string& text) { return text.empty() ? "\"\"" : text; }

template <typename T>
std::string digits(T number) {
  return std::to_string(number);
}

template <typename T>
Setting integer(std::string_view name, Place<T> place, Range range, std::string_view help) {
  return one(
      name, place, "", [=](const std::string& v) { return parse_integer(v, range); }, digits<T>,
      help);
}

Setting bytes(std::string_view name, Place<uint64_t> place, Range range, std::string_view help) {
  return one(
      name, place, "bytes", [=](const std::string& v) { return parse_bytes(v, range); },
      print_bytes, help);
}

Setting seconds(std::string_view name, Place<int64_t> place, Range range, std::string_view help) {
  return one(
      name, place, "s", [=](const std::string& v) { return parse_seconds(v, range); },
      digits<int64_t>, help);
}

Setting real(std::string_view name, Place<double> place, double least, double most,
             std::string_view help) {
  return one(
      name, place, "", [=](const std::string& v) { return parse_real(v, least, most); },
      base::number_text, help);
}

Setting flag(std::string_view name, Place<bool> place, std::string_view help) {
  const auto print = [](bool on) { return std::string(on ? "true" : "false"); };
  return one(name, place, "", parse_flag, print, help);
}

Setting path(std::string_view name, Place<std::string> place, bool may_be_empty,
             std::string_view help) {
  const auto parse = [=](const std::string& v) {
    return may_be_empty && v.empty() ? v : parse_path(v);
  };
  return one(name, place, "", parse, or_quotes, help);
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

// A name: lower case letters, digits, - and _.
Setting word(std::string_view name, Place<std::string> place, const Values& choices,
             std::string_view help) {
  const auto parse = [=](const std::string& v) {
    if (choices.empty()) return parse_word(v);
    if (std::find(choices.begin(), choices.end(), v) != choices.end()) return v;
    std::string list;
    for (const std::string& choice : choices) list += (list.empty() ? ": " : ", ") + choice;
    throw Error(Code::invalid_argument, "\"" + v + "\" is not an allowed name" + list);
  };
  return one(
      name, place, "", parse, [](const std::string& v) { return v; }, help);
}

// A setting's name is that of its field.
#define MOORAGE_AT(member) #member, ([](Settings & s) -> auto& { return s.member; })

std::vector<Setting> about_daemon() {
  return {
      path(MOORAGE_AT(store.directory), false, "directory of workspaces and all other data"),
      path(MOORAGE_AT(store.image), true,
           "image file to mount at store.directory, if its own file system (such as NFS) cannot "
           "hold layers; created if missing; empty: no image"),
      bytes(MOORAGE_AT(store.image_bytes), {0, 1024 * kTiB},
            "size of that image, allocated at once; raise it to grow the image"),
      bytes(MOORAGE_AT(store.reserve_bytes), {0, kTiB},
            "disk space reserved for the database, so that it can still write on a full disk"),
      bytes(MOORAGE_AT(store.min_free_bytes), {0, 1024 * kTiB},
            "with less free, no work that needs space starts; with less than half of it free, "
            "commands that write are ended; 0: 1G, or 2 % of the disk if that is less"),
      integer<uint64_t>(MOORAGE_AT(store.min_free_inodes), {0, 4'000'000'000},
                        "like min_free_bytes, in inodes; 0: 20000, or 2 % of all if that is less"),
      word(MOORAGE_AT(store.disk_quota), {"auto", "watched"},
           "enforcement of disk limits: auto uses the file system's quotas where available; "
           "watched uses only the daemon's watcher"),
      bytes(MOORAGE_AT(store.budget_bytes), {0, 1024 * kTiB},
            "largest total of mirrors, base trees and workspaces; 0: no limit"),
      integer<uint64_t>(MOORAGE_AT(store.budget_files), {0, 4'000'000'000},
                        "like budget_bytes, in inodes; 0: no limit"),
      path(MOORAGE_AT(api.socket), false, "unix socket of the HTTP API"),
      word(MOORAGE_AT(api.group), {}, "group that may use the API"),
      integer<uint32_t>(MOORAGE_AT(api.max_connections), {1, 65'536}, "most connections at once"),
      bytes(MOORAGE_AT(api.max_body_bytes), {kMiB, 1024 * kTiB},
            "largest streamed request body: a file, a bundle, standard input"),
      bytes(MOORAGE_AT(api.max_json_bytes), {4096, 64 * kMiB}, "largest JSON request body"),
      word(MOORAGE_AT(log.level), {"debug", "info", "warning", "error"}, "lowest level to log"),
      flag(MOORAGE_AT(log.json), "log JSON lines instead of text"),
      path(MOORAGE_AT(log.file), true, "log file; empty: standard error"),
      integer<uint32_t>(MOORAGE_AT(daemon.threads), {2, 1024}, "threads for blocking operations"),
      seconds(MOORAGE_AT(daemon.reconcile_interval_s), {1, 3600},
              "interval for comparing the database with the actual state"),
      path(MOORAGE_AT(libexec_directory), false,
           "directory of the programs that mooraged starts; default: found near the program"),
  };
}

std::vector<Setting> about_work() {
  return {
      list(MOORAGE_AT(repo.file_roots), parse_path,
           "directories below which local repositories may be cloned"),
      seconds(MOORAGE_AT(repo.fetch_deadline_s), {1, 7 * kDay}, "time limit of a clone or fetch"),
      bytes(MOORAGE_AT(repo.max_fetch_bytes), {kMiB, 1024 * kTiB},
            "largest pack in a clone or fetch"),
      bytes(MOORAGE_AT(repo.max_git_memory_bytes), {256 * kMiB, 1024 * kTiB},
            "memory of each process of git, which reads what upstream sends"),
      integer<uint64_t>(MOORAGE_AT(repo.max_objects), {1000, 4'000'000'000},
                        "most objects in a clone or fetch"),
      integer<uint32_t>(MOORAGE_AT(repo.checkout_threads), {0, 256},
                        "threads that write a base tree; 0: number of CPUs"),
      one<std::string>(MOORAGE_AT(repo.https_proxy), "", parse_proxy, or_quotes,
                       "proxy for https repositories; empty: none"),
      list(MOORAGE_AT(repo.no_proxy), parse_host,
           "hosts contacted without the proxy; .example.com includes subdomains"),
      path(MOORAGE_AT(repo.ca_file), true,
           "PEM file of certificates for https repositories; empty: the system's"),
      path(MOORAGE_AT(repo.ssh_config), true,
           "ssh_config(5) file for ssh repositories with a credential; empty: none"),
      seconds(MOORAGE_AT(repo.access_s), {0, 7 * kDay},
              "how long a user may use the cached copy of a private repository after upstream "
              "last allowed it, while upstream is not asked or does not answer"),
      bytes(MOORAGE_AT(repo.budget_bytes), {0, 1024 * kTiB},
            "largest total of one repository: mirror, base trees, workspaces; 0: no limit"),
      integer<uint32_t>(
          MOORAGE_AT(ids.disk_first_id), {65'536, 4'294'836'224},
          "first of 65538 ids: owners on disk, and the user of moorage-egress; must not "
          "belong to host users"),
      integer<uint32_t>(MOORAGE_AT(ids.sandbox_first_id), {65'536, 2'147'418'112},
                        "first host id of the pool for sandboxes"),
      integer<uint32_t>(MOORAGE_AT(ids.sandbox_slots), {1, 65'000},
                        "ranges of 65536 ids in that pool, one per sandbox"),
      word(MOORAGE_AT(sandbox.backend), {}, "backend of new workspaces"),
      flag(MOORAGE_AT(sandbox.allow_process_backend), "allow the backend without isolation"),
      bytes(MOORAGE_AT(sandbox.memory_bytes), {base::kLeastMemoryBytes, base::kMostMemoryBytes},
            "memory limit of a sandbox"),
      real(MOORAGE_AT(sandbox.cpus), base::kLeastCpus, base::kMostCpus, "CPU limit of a sandbox"),
      integer<uint32_t>(MOORAGE_AT(sandbox.pids), {16, base::kMostPids},
                        "limit on processes and threads in a sandbox"),
      seconds(MOORAGE_AT(sandbox.start_deadline_s), {1, 3600}, "time limit of a sandbox's start"),
      seconds(MOORAGE_AT(sandbox.stop_grace_s), {0, 3600},
              "how long a stop waits for processes to end before it kills them"),
      flag(MOORAGE_AT(sandbox.sudo),
           "sudo without password inside the sandbox, if its backend supports root"),
      one<std::string>(MOORAGE_AT(sandbox.git_name), "", parse_identity, or_quotes,
                       "name in commits of users who have none in their git configuration"),
      one<std::string>(MOORAGE_AT(sandbox.git_email), "", parse_identity, or_quotes,
                       "address in commits of users who have none in their git configuration"),
      integer<uint32_t>(MOORAGE_AT(sandbox.cpu_weight), {1, 10'000},
                        "CPU weight of all sandboxes together; a service of the host has 100"),
      bytes(MOORAGE_AT(sandbox.disk_rate_bytes), {0, kTiB},
            "limit on a sandbox's disk reads, and on its writes, per second; 0: no limit"),
      flag(MOORAGE_AT(sandbox.nested_namespaces),
           "allow user namespaces and mounts in them; exposes more of the kernel"),
      seconds(MOORAGE_AT(sandbox.idle_stop_s), {0, 366 * kDay},
              "stop a sandbox idle for this long; the next command restarts it; 0: never"),
      seconds(MOORAGE_AT(sandbox.max_lifetime_s), {0, 366 * kDay},
              "stop any sandbox after this long, even if busy; 0: never"),
      path(MOORAGE_AT(docker.socket), false, "unix socket of Docker or Podman, for backend docker"),
      one<std::string>(MOORAGE_AT(docker.runtime), "", parse_runtime, or_quotes,
                       "default runtime in that engine, such as crun; empty: the engine's default"),
  };
}

std::vector<Setting> about_networks() {
  return {
      word(MOORAGE_AT(network.mode), {},
           "network of a new workspace unless it names one: none, packages, dev, open"),
      path(MOORAGE_AT(network.presets_directory), true,
           "directory of the files that describe these networks; empty: those of this release"),
      list(MOORAGE_AT(network.resolvers), parse_resolver,
           "DNS servers that resolve allowed names; empty: those of /etc/resolv.conf"),
      list(MOORAGE_AT(network.reachable), parse_address_range,
           "private address ranges that allowed names may resolve to, like 10.0.0.0/8"),
      one<std::string>(MOORAGE_AT(network.proxy), "", parse_http_proxy, or_quotes,
                       "proxy through which sandboxes reach hosts; empty: directly"),
      path(MOORAGE_AT(network.proxy_authorization_file), true,
           "file with user:password for that proxy, readable by root only; empty: none"),
      list(MOORAGE_AT(network.no_proxy), parse_host,
           "hosts reached without that proxy; .example.com includes subdomains"),
      path(MOORAGE_AT(network.ca_file), true,
           "PEM file of certificates that programs in sandboxes trust besides the usual; empty: "
           "none"),
      path(MOORAGE_AT(network.credential_key), false,
           "key that decrypts credentials, outside of the store; made if missing"),
      integer<uint32_t>(MOORAGE_AT(network.max_connections), {1, 1500},
                        "most open connections of a sandbox"),
      bytes(MOORAGE_AT(network.rate_bytes), {65'536, kTiB, true},
            "limit on a sandbox's traffic per second, both directions together; 0: no limit"),
      bytes(MOORAGE_AT(network.total_bytes), {kMiB, 1024 * kTiB, true},
            "limit on a sandbox's traffic while it runs; 0: no limit"),
  };
}

std::vector<Setting> about_remote() {
  return {
      seconds(MOORAGE_AT(remote.sync_interval_s), {1, 3600},
              "interval at which the files of a running command on another machine are copied "
              "here; those of an ended one are here before its end is reported"),
      seconds(MOORAGE_AT(remote.start_deadline_s), {10, kDay},
              "time limit of a start on another machine, which includes the first copy"),
      integer<uint32_t>(MOORAGE_AT(remote.user_hours_a_day), {0, 1'000'000},
                        "hours that one user's sandboxes on other machines may last in 24 hours, "
                        "all together; then none is started; 0: no limit"),
  };
}

std::vector<Setting> about_kept_data() {
  return {
      bytes(MOORAGE_AT(exec.output_limit_bytes), {65'536, 1024 * kTiB},
            "how much output of a command is kept; if longer, its middle is dropped"),
      seconds(MOORAGE_AT(exec.default_timeout_s), {0, 366 * kDay},
              "default time limit of commands; 0: none"),
      seconds(MOORAGE_AT(workspace.undelete_window_s), {0, 3660 * kDay},
              "how long undelete stays possible; time with the machine off does not count"),
      flag(MOORAGE_AT(workspace.delete_losers),
           "delete the other attempts of a best-of whose best one was promoted"),
      bytes(MOORAGE_AT(workspace.output_limit_bytes), {0, 1024 * kTiB},
            "how much output of a workspace's commands is kept, newest first; 0: no limit"),
      seconds(MOORAGE_AT(workspace.output_keep_s), {0, 3660 * kDay},
              "delete a command's output this long after its end; 0: never; time with the "
              "machine off does not count"),
      bytes(MOORAGE_AT(workspace.disk_limit_bytes),
            {base::kLeastDiskBytes, base::kMostDiskBytes, true},
            "default disk limit of a workspace; 0: none"),
      integer<uint64_t>(MOORAGE_AT(workspace.disk_limit_files),
                        {base::kLeastDiskFiles, base::kMostDiskFiles, true},
                        "default limit on a workspace's files; 0: none"),
      bytes(MOORAGE_AT(user.budget_bytes), {0, 1024 * kTiB},
            "largest total of one user's workspaces; 0: no limit"),
      seconds(MOORAGE_AT(gc.archive_after_s), {0, 3660 * kDay},
              "idle time after which gc may archive a workspace; time with the machine "
              "off does not count"),
      seconds(MOORAGE_AT(gc.keep_unused_s), {0, 366 * kDay},
              "gc keeps objects created or used within this time"),
      path(MOORAGE_AT(archive.directory), true,
           "directory for archives, perhaps on another file system; empty: archive in the store"),
      integer<uint32_t>(MOORAGE_AT(archive.level), {1, 19}, "zstd compression level of archives"),
      integer<uint32_t>(MOORAGE_AT(archive.threads), {1, 64}, "threads that compress one archive"),
      bytes(MOORAGE_AT(archive.import_max_bytes), {kMiB, 1024 * kTiB},
            "largest archive that may be imported, unpacked"),
      path(MOORAGE_AT(replica.directory), true,
           "directory for a copy of the store, on another disk or NFS, root only; empty: none"),
      seconds(MOORAGE_AT(replica.interval_s), {1, 3600},
              "interval between updates of that copy; longer if an update is slow"),
      flag(MOORAGE_AT(replica.same_disk),
           "allow that copy on the store's own disk, where it is lost with the disk"),
      seconds(MOORAGE_AT(workspace.sync_interval_s), {1, 3600},
              "longest time until written files are synced to disk"),
  };
}

#undef MOORAGE_AT

}  // namespace

const std::vector<Setting>& settings_table() {
  static const std::vector<Setting> table = [] {
    std::vector<Setting> all = about_daemon();
    for (Setting& setting : about_work()) all.push_back(std::move(setting));
    for (Setting& setting : about_networks()) all.push_back(std::move(setting));
    for (Setting& setting : about_remote()) all.push_back(std::move(setting));
    for (Setting& setting : about_kept_data()) all.push_back(std::move(setting));
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
