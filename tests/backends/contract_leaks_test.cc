// The contract of backends/backend.h: finished work leaves nothing behind.
#include <sched.h>

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <set>
#include <sstream>
#include <vector>

#include "base/error.h"
#include "base/os/files.h"
#include "base/os/mount.h"
#include "base/os/namespaces.h"
#include "contract.h"

using namespace moorage;
using tests::Command;
using tests::SandboxFixture;
using tests::traces;

namespace {

// This host's control groups that have `mark` in their path.
size_t groups_with(const std::string& mark) {
  namespace fs = std::filesystem;
  size_t count = 0;
  std::error_code error;
  for (fs::recursive_directory_iterator each("/sys/fs/cgroup", error), end; each != end;
       each.increment(error)) {
    count += each->is_directory(error) && each->path().string().find(mark) != std::string::npos;
  }
  return count;
}

// Their names and states, as "(sh) Z".
std::vector<std::string> children_of(int parent) {
  std::vector<std::string> found;
  for (const std::string& pid : base::list_directory("/proc")) {
    if (pid.find_first_not_of("0123456789") != std::string::npos) continue;
    const auto stat = base::read_file_if_exists("/proc/" + pid + "/stat");
    if (!stat || stat->find(") ") == std::string::npos) continue;  // it ended
    std::istringstream fields(stat->substr(stat->rfind(") ") + 2));
    std::string state;
    int its_parent = 0;
    fields >> state >> its_parent;
    if (its_parent == parent)
      found.push_back(stat->substr(stat->find('('), stat->rfind(')') + 3 - stat->find('(')));
  }
  return found;
}

uint64_t resident_kilobytes(int pid) {
  const std::string status = base::read_file("/proc/" + std::to_string(pid) + "/status");
  return std::stoull(status.substr(status.find("VmRSS:") + 6));
}

size_t descriptors(const std::string& process) {
  return base::list_directory("/proc/" + process + "/fd").size();
}

struct Holdings {
  size_t wardens_descriptors = 0;  // and of what serves the sandbox on another machine
  size_t own_descriptors = 0;
  size_t groups = 0;
  std::vector<std::string> children{};  // including zombies
  uint32_t processes = 0;
};

// The warden, or the link and what serves the sandbox on the other machine.
std::vector<int> lasting(SandboxFixture& sandboxes, int init) {
  std::vector<int> pids = tests::servers_there(sandboxes.name(1));
  pids.push_back(init);
  return pids;
}

Holdings held(SandboxFixture& sandboxes, int init) {
  Holdings all{0,
               descriptors("self"),
               groups_with(sandboxes.prefix()),
               {},
               sandboxes.backend().inspect(sandboxes.name(1)).processes};
  for (const int pid : lasting(sandboxes, init)) {
    all.wardens_descriptors += descriptors(std::to_string(pid));
    std::ranges::move(children_of(pid), std::back_inserter(all.children));
  }
  return all;
}

uint64_t memory_held(SandboxFixture& sandboxes, int init) {
  uint64_t kilobytes = 0;
  for (const int pid : lasting(sandboxes, init)) kilobytes += resident_kilobytes(pid);
  return kilobytes;
}

std::set<std::string> lines_of(const std::string& path) {
  std::set<std::string> lines;
  std::istringstream text(base::read_file(path));
  for (std::string line; std::getline(text, line);) lines.insert(line);
  return lines;
}

bool no_more(const Holdings& now, const Holdings& before) {
  return now.wardens_descriptors <= before.wardens_descriptors &&
         now.own_descriptors <= before.own_descriptors && now.groups <= before.groups &&
         now.children.size() <= before.children.size() && now.processes <= before.processes;
}

std::string text(const Holdings& held) {
  std::ostringstream text;
  text << held.wardens_descriptors << " descriptors of the warden, " << held.own_descriptors
       << " of the test, " << held.groups << " groups, " << held.processes
       << " processes, children:";
  for (const std::string& child : held.children) text << " " << child;
  return text.str();
}

}  // namespace

TEST_CASE("1,000 execs leak nothing", "[contract][long]") {
  SandboxFixture sandboxes(EACH_BACKEND);
  if (!tests::available(sandboxes) || !tests::runs_commands(sandboxes)) return;
  const int init = sandboxes.start(1).init.pid;
  const Command command{.argv = {"/bin/true"}};
  for (int i = 0; i < 50; ++i)
    REQUIRE(sandboxes.run(1, command).code == 0);  // create one-time objects
  const Holdings before = held(sandboxes, init);
  const uint64_t memory = memory_held(sandboxes, init);
  for (int i = 0; i < 1000; ++i) REQUIRE(sandboxes.run(1, command).code == 0);
  // The warden closes a connection when it sees its end; so may the first count be one too high.
  const bool as_before = tests::within(std::chrono::seconds(5),
                                       [&] { return no_more(held(sandboxes, init), before); });
  CAPTURE(text(before), text(held(sandboxes, init)));
  CHECK(as_before);
  CHECK(memory_held(sandboxes, init) < memory + 512);
  CHECK(sandboxes.backend().members(sandboxes.name(1)).empty());
}

TEST_CASE("fifty starts and ends leave the host's mounts, groups and processes unchanged",
          "[contract][long]") {
  SandboxFixture sandboxes(EACH_BACKEND);
  if (!tests::available(sandboxes)) return;
  const auto root_entries = base::list_directory("/");
  const auto run_entries = base::list_directory("/run");
  std::set<std::string> before;
  std::set<std::string> more;
  // In our own mount namespace, where no one else adds mounts. Some may vanish: with a directory
  // removed in another namespace.
  base::in_mount_namespace(base::identify_process(getpid()), [&] {
    base::check(unshare(CLONE_NEWNS), "unshare the mounts");
    base::set_propagation_private("/");
    before = lines_of("/proc/thread-self/mountinfo");
    for (int i = 0; i < 50; ++i) {
      sandboxes.start(1 + i % 3);
      sandboxes.backend().destroy(sandboxes.name(1 + i % 3));
    }
    more = lines_of("/proc/thread-self/mountinfo");
    for (const std::string& line : before) more.erase(line);
  });
  CHECK(more == std::set<std::string>{});
  CHECK(base::read_file("/proc/self/mountinfo").find(sandboxes.prefix()) == std::string::npos);
  CHECK(base::read_file("/proc/self/mountinfo").find(sandboxes.store()) == std::string::npos);
  CHECK(base::list_directory("/") == root_entries);
  CHECK(base::list_directory("/run") == run_entries);
  CHECK(traces(sandboxes) == "");
}

TEST_CASE("querying an ended exec leaves no control group", "[contract]") {
  SandboxFixture sandboxes(EACH_BACKEND);
  if (!tests::available(sandboxes) || !tests::runs_commands(sandboxes)) return;
  if (!tests::runs_here(sandboxes)) return;
  sandboxes.start(1);
  const std::string group = sandboxes.group(1) + "/cmd/ex_ended";
  const auto ended = sandboxes.backend().exec_group(sandboxes.name(1), "ex_ended");
  CHECK(ended->members(10).empty());
  CHECK(ended->processes() == 0);
  CHECK(ended->empty());
  CHECK(ended->oom_kills() == 0);
  ended->set_frozen(false);
  ended->kill();
  CHECK_FALSE(base::path_exists(group));
  ended->remove();
  const auto joins = ended->join_fds();
  CHECK(base::path_exists(group));
  ended->remove();
  CHECK_FALSE(base::path_exists(group));
}
