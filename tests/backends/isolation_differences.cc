// Allowed differences between the view inside a sandbox of another backend and of lxc, each with
// its reason. isolation_view_test.cc fails for a difference missing here, and for a line here
// without a difference; docs/backends.md shows the results.
#include "probe_table.h"

namespace moorage::tests {
namespace {

struct Line {
  const char* line;
  const char* reason;
};

// For every container engine.
constexpr Line kOfEngines[] = {
    {"list:/", "the engine's mark, `.dockerenv`, an empty file"},
    {"list:/dev", "LXC's mark, `.lxc-boot-id`; the engine's mount point `mqueue`, not mounted"},
    {"cgroup",
     "process 1 moves to the sandbox's group after its namespace exists: /proc/self/cgroup "
     "shows the group's name; others stay hidden, and all unchangeable"},
    {"mount:/", "the engine's own mount of the image, read-only; its devices cannot be opened"},
    {"mount:/.moorage/*", "bound by the engine, whose only option is read-only"},
    {"mount:/dev", "nosuid in addition"},
    {"mount:/dev/ptmx", "a link to pts/ptmx instead of a mount"},
    {"mount:/dev/shm", "noexec in addition"},
    {"mount:/etc/*", "users, groups and hosts of a sandbox are shown over those of an image"},
    {"mount:/proc/sys", "nosuid, nodev, noexec in addition"},
    {"mount:/proc/sys/kernel/random/boot_id",
     "LXC gives each container its own; the engine leaves the host's"},
    {"mount:/sys", "our empty one replaces the engine's; on lxc a directory of the skeleton"},
    {"mount:/home/user", "an empty mount of the engine lies below"},
    {"mount:/workspace", "an empty mount of the engine lies below"},
    {"mount:/root", "an empty mount of the engine lies below"},
    {"mount:/run", "an empty mount of the engine lies below"},
    {"mount:/tmp", "an empty mount of the engine lies below"},
    {"mount:/var/tmp", "an empty mount of the engine lies below"},
};
constexpr Line kOfEnginesOnSomeKernels[] = {
    {"int80-getpid",
     "on kernels with 32-bit calls, one kills the program instead of returning ENOSYS"},
    {"mount:/sys/fs/moorage/*",
     "with control groups of version 1, the commands' group also where the path leads that the "
     "engine's namespace shows"},
    {"mount:/proc/sysrq-trigger", "covered once; LXC mounts it read-only below the cover"},
};

// For another machine, whoever logs in.
constexpr Line kElsewhere[] = {
    {"dial-bootstrap", "no bootstrap socket: the warden there starts with its listener"},
    {"read-warden", "the warden's program has no path inside"},
    {"write-warden", "the warden's program has no path inside"},
    {"list:/.moorage", "only the git objects: neither the warden nor a bootstrap socket"},
    {"mount:/.moorage/*", "only the git objects: neither the warden nor a bootstrap socket"},
    {"list:/dev", "LXC's mark, `.lxc-boot-id`"},
    {"list:/var", "fewer empty directories"},
    {"mount:/", "a read-only tmpfs instead of a skeleton on the disk"},
    {"mount:/dev", "a directory of that read-only root"},
    {"mount:/dev/ptmx", "a link to pts/ptmx instead of a mount"},
    {"mount:/etc/*", "the machine's own files that programs need, one by one, read-only"},
    {"mount:/usr", "nosuid in addition: there is no sudo"},
    {"mount:/home/user", "an overlay of its own there"},
    {"mount:/workspace", "an overlay of its own there"},
    {"mount:/proc/sys",
     "not read-only as a mount: all settings there are the machine's root's, except those of the "
     "sandbox's own network"},
    {"mount:/proc/sys/kernel/random/boot_id",
     "LXC gives each container its own; here the machine's"},
    {"own-NoNewPrivs", "no program grants rights: there is no sudo"},
    {"processes", "a process beside each command that can end all it starts, in place of a group"},
};

// Where root logs in: `root` is known there and owns nothing.
void add_elsewhere_as_root(std::vector<Allowed>& list, const char* backend) {
  const std::string reason =
      "also refused, but EACCES comes before EROFS: not even root inside owns the place";
  list.push_back({backend, "write-etc", reason});
  list.push_back({backend, "write:/dev", "refused: not even root inside owns the place"});
  for (const char* place : {"etc", "home", "mnt", "opt", "srv", "sys", "usr", "var", "var/log"})
    list.push_back({backend, std::string("write:/") + place, reason});
}

// Where another user logs in: its id is the only one inside.
void add_elsewhere_as_user(std::vector<Allowed>& list, const char* backend) {
  for (const char* line : {"own-uid_map", "own-gid_map"})
    list.push_back({backend, line, "no root inside: only the id of the login there"});
  for (const char* line : {"list:/root", "write:/root", "write:/run"})
    list.push_back({backend, line, "no root inside: that one id owns private places"});
  list.push_back({backend, "own-CapBnd", "no capability is available at all"});
  const std::string reason =
      "also refused, but EROFS comes in place of EACCES: all places are of that one id";
  for (const char* line : {"write-etc", "write:/"}) list.push_back({backend, line, reason});
  for (const char* place : {"dev", "etc", "home", "mnt", "opt", "srv", "sys", "var", "var/log"}) {
    list.push_back({backend, std::string("write:/") + place, reason});
  }
}

void add_elsewhere(std::vector<Allowed>& list) {
  for (const char* backend : {"ssh", "ssh-user", "e2b", "daytona"}) {
    for (const auto& each : kElsewhere) list.push_back({backend, each.line, each.reason});
    list.push_back({backend, "read:/proc/locks",
                    "at times the warden's lock on the output of the command", true});
  }
  for (const char* backend : {"ssh", "e2b"}) {
    add_elsewhere_as_root(list, backend);
    list.push_back({backend, "mount:/sys/fs/cgroup*",
                    "those control groups that the machine has, without noexec; version 1's lie in "
                    "a directory of that root"});
  }
  for (const char* backend : {"ssh-user", "daytona"})
    list.push_back({backend, "mount:/sys/fs/cgroup*", "that login can make no control groups"});
  for (const char* backend : {"ssh-user", "daytona"}) add_elsewhere_as_user(list, backend);
  for (const char* backend : {"ssh", "ssh-user"})
    list.push_back({backend, "mount:/sys/devices/system/*", "without noexec"});
}

std::vector<Allowed> all() {
  std::vector<Allowed> list;
  for (const char* backend : {"docker", "docker-userns"}) {
    for (const auto& each : kOfEngines) list.push_back({backend, each.line, each.reason});
    for (const auto& each : kOfEnginesOnSomeKernels) {
      list.push_back({backend, each.line, each.reason, true});
    }
  }
  const std::string one_id =
      "no user namespace: a whole sandbox is one id of its own range, which no host user has";
  for (const char* line : {"own-Uid", "own-Gid", "own-Groups", "own-uid_map", "own-gid_map"}) {
    list.push_back({"docker", line, one_id});
  }
  for (const char* line : {"list:/root", "write:/root", "write:/run"}) {
    list.push_back({"docker", line, "no root inside: that one id owns private places"});
  }
  list.push_back({"docker", "own-CapBnd", "no capability is available at all"});
  list.push_back({"docker", "own-NoNewPrivs", "no program grants rights: there is no sudo"});
  list.push_back({"docker", "mount:/usr", "nosuid in addition: there is no sudo"});
  list.push_back(
      {"docker", "mount:/dev/*",
       "the engine creates devices; with a user namespace they are the host's, bound one by one"});
  for (const char* line : {"write-etc", "write:/sys"}) {
    list.push_back(
        {"docker-userns", line,
         "also refused, but EACCES comes before EROFS: not even root inside owns the place"});
  }
  add_elsewhere(list);
  return list;
}

}  // namespace

const std::vector<Allowed>& allowed_differences() {
  static const std::vector<Allowed> list = all();
  return list;
}

}  // namespace moorage::tests
