// moorage-launch: makes the inside of one sandbox, starts its process 1 (or finds it started by a
// container engine), prints its pid and exits. It is a separate single-threaded program because
// liblxc forks and because it leaves the host's mount namespace; the daemon does neither. Request
// on standard input (request.h); answer on standard output: {"init_pid":N}, or
// {"error":{code,message,hint}} and exit code 1. On failure the caller kills the rest with its
// cgroup.
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <boost/json.hpp>
#include <iostream>

#include "base/error.h"
#include "base/os/fd.h"
#include "base/os/processors.h"
#include "base/os/user_namespace.h"
#include "cgroup_namespace.h"
#include "root.h"
#include "start.h"

namespace {

namespace json = boost::json;
using namespace moorage;

constexpr size_t kMaxRequestBytes = 1 << 20;

pid_t start(const launch::Request& request) {
  launch::join_cgroup(request);
  // What we start keeps to them, too; an engine's container is there already.
  if (!request.processors.empty())
    base::keep_to_processors(request.mode == "furnish" ? request.init_pid : 0, request.processors);
  if (request.mode == "process" || request.mode == "link") return launch::start_plain(request);
  if (request.mode == "furnish") {
    launch::furnish(request);
    return request.init_pid;
  }
  // Owned by the sandbox's first id, which no other sandbox and no host user has: so each has its
  // own account in the kernel.
  const base::UserNamespace ids({{0, request.first_host_id, launch::kIdsPerSandbox}},
                                request.first_host_id);
  const launch::CgroupNamespace cgroups(request, ids);
  launch::build_root(request, ids);
  return launch::start_container(request, {ids, cgroups});
}

}  // namespace

int main() {
  // The caller's signal mask and dispositions must not reach the sandbox.
  signal(SIGPIPE, SIG_DFL);
  umask(022);
  try {
    const launch::Request request =
        launch::parse_request(base::read_up_to(STDIN_FILENO, kMaxRequestBytes));
    const pid_t pid = start(request);
    std::cout << json::serialize(json::object{{"init_pid", pid}}) << std::flush;
    // Skip LXC's threads and destructors.
    _exit(0);
  } catch (const Error& error) {
    json::object text{{"code", base::code_name(error.code())},
                      {"message", error.message()},
                      {"hint", error.hint()}};
    std::cout << json::serialize(json::object{{"error", std::move(text)}}) << std::flush;
    return 1;
  }
}
