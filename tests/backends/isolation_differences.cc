// Where a stranger in a sandbox of another backend may see something else than on lxc, each with
// its reason. isolation_view_test.cc fails for a difference that is not here, and for a line here
// that is no difference; docs/backends.md shows what was found.
#include "probe_table.h"

namespace moorage::tests {
namespace {

struct Line {
  const char* line;
  const char* reason;
};

// Of every container engine.
constexpr Line kOfEngines[] = {
    {"list:/", "the engine's mark, `.dockerenv`, an empty file"},
    {"list:/dev",
     "LXC's mark, `.lxc-boot-id`; the engine's, the place of `mqueue`, with nothing mounted there"},
    {"cgroup",
     "process 1 is moved to the sandbox's group when its namespace is there already: "
     "/proc/self/cgroup "
     "tells the group's name, and no group can be seen or changed"},
    {"mount:/", "the engine's own mount of the image, read-only; no device of it can be opened"},
    {"mount:/.moorage/*", "bound by the engine, which has no options but read-only"},
    {"mount:/dev", "nosuid in addition"},
    {"mount:/dev/ptmx", "a link to pts/ptmx instead of a mount"},
    {"mount:/dev/shm", "noexec in addition"},
    {"mount:/etc/*", "users, groups and hosts of a sandbox are shown over those of an image"},
    {"mount:/proc/sys", "nosuid, nodev, noexec in addition"},
    {"mount:/proc/sys/kernel/random/boot_id",
     "LXC gives each container one of its own; the engine leaves the host's"},
    {"mount:/sys",
     "an empty one of ours in place of the engine's; on lxc a directory of the skeleton"},
    {"mount:/home/user", "an empty place of the engine's lies below"},
    {"mount:/workspace", "an empty place of the engine's lies below"},
    {"mount:/root", "an empty place of the engine's lies below"},
    {"mount:/run", "an empty place of the engine's lies below"},
    {"mount:/tmp", "an empty place of the engine's lies below"},
    {"mount:/var/tmp", "an empty place of the engine's lies below"},
};
constexpr Line kOfEnginesOnSomeKernels[] = {
    {"int80-getpid", "where there are 32-bit calls, one ends the program instead of being ENOSYS"},
    {"mount:/proc/sysrq-trigger", "covered once; LXC mounts it read-only below the cover"},
};

std::vector<Allowed> all() {
  std::vector<Allowed> list;
  for (const char* backend : {"docker", "docker-userns"}) {
    for (const auto& each : kOfEngines) list.push_back({backend, each.line, each.reason});
    for (const auto& each : kOfEnginesOnSomeKernels) {
      list.push_back({backend, each.line, each.reason, true});
    }
  }
  const std::string one_id =
      "no user namespace: all of a sandbox is one id of its own range, which no one on the host "
      "has";
  for (const char* line : {"own-Uid", "own-Gid", "own-Groups", "own-uid_map", "own-gid_map"}) {
    list.push_back({"docker", line, one_id});
  }
  for (const char* line : {"list:/root", "write:/root", "write:/run"}) {
    list.push_back({"docker", line, "there is no root inside: private places are that one id's"});
  }
  list.push_back({"docker", "own-CapBnd", "no capability can be had at all"});
  list.push_back({"docker", "own-NoNewPrivs", "no program gives rights: there is no sudo"});
  list.push_back({"docker", "mount:/usr", "nosuid in addition: there is no sudo"});
  list.push_back(
      {"docker", "mount:/dev/*",
       "devices are made by the engine; where there is a user namespace they are the host's, "
       "bound one by one"});
  for (const char* line : {"write-etc", "write:/sys"}) {
    list.push_back(
        {"docker-userns", line,
         "refused as well, with EACCES before EROFS: the place is not even root's inside"});
  }
  return list;
}

}  // namespace

const std::vector<Allowed>& allowed_differences() {
  static const std::vector<Allowed> list = all();
  return list;
}

}  // namespace moorage::tests
