#include "outpost/inside/process_tree.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <charconv>
#include <map>
#include <string>
#include <string_view>
#include <thread>

#include "base/os/files.h"
#include "base/os/process.h"

namespace moorage::outpost {
namespace {

constexpr auto kPause = std::chrono::milliseconds(2);

struct Seen {
  char state = 'Z';
  pid_t parent = 0;
};

// "PID (NAME) STATE PARENT ...": a name may hold any character. Ended: a zombie of nobody.
Seen look(pid_t pid) {
  const std::string text = base::read_proc_file(pid, "stat");
  const size_t name_end = text.rfind(')');
  if (name_end == std::string::npos || name_end + 4 >= text.size()) return {};
  Seen seen{text[name_end + 2], 0};
  std::from_chars(text.data() + name_end + 4, text.data() + text.size(), seen.parent);
  return seen;
}

bool ended(const Seen& seen) { return seen.state == 'Z' || seen.state == 'X'; }

}  // namespace

std::vector<pid_t> descendants(pid_t root) {
  std::multimap<pid_t, pid_t> children;
  std::map<pid_t, Seen> all;
  for (const std::string& name : base::list_directory("/proc")) {
    pid_t pid = 0;
    std::from_chars(name.data(), name.data() + name.size(), pid);
    if (pid <= 0) continue;
    const Seen seen = look(pid);
    all[pid] = seen;
    children.emplace(seen.parent, pid);
  }
  std::vector<pid_t> found{root};
  for (size_t i = 0; i < found.size(); ++i) {
    const auto [first, last] = children.equal_range(found[i]);
    for (auto child = first; child != last; ++child) found.push_back(child->second);
    children.erase(first, last);  // numbers may be reused during the walk: no cycles
  }
  found.erase(found.begin());
  std::erase_if(found, [&](pid_t pid) { return ended(all[pid]); });
  return found;
}

bool kill_descendants(pid_t root, std::chrono::milliseconds patience) {
  const auto end = std::chrono::steady_clock::now() + patience;
  for (;;) {
    const std::vector<pid_t> left = descendants(root);
    if (left.empty()) return true;
    if (std::chrono::steady_clock::now() > end) return false;
    // First all stand still, so that none of them starts another one unseen.
    for (const pid_t pid : left) kill(pid, SIGSTOP);
    for (const pid_t pid : left) kill(pid, SIGKILL);
    std::this_thread::sleep_for(kPause);
  }
}

}  // namespace moorage::outpost
