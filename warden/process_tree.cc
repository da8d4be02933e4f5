#include "warden/process_tree.h"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#include <array>
#include <memory>
#include <set>
#include <string>
#include <unordered_map>

#include "base/os/fd.h"

namespace moorage::warden {
namespace {

constexpr int kMaxPasses = 100;

struct Close {
  void operator()(DIR* handle) const { ::closedir(handle); }
};

}  // namespace

std::string_view read_small(const char* path, std::span<char> buffer) {
  Fd file(::open(path, O_RDONLY | O_CLOEXEC));
  if (!file) return {};
  const ssize_t size = ::read(file.get(), buffer.data(), buffer.size() - 1);
  if (size <= 0) return {};
  buffer[static_cast<size_t>(size)] = '\0';
  return {buffer.data(), static_cast<size_t>(size)};
}

std::vector<pid_t> numbers_in(const char* path) {
  std::vector<pid_t> numbers;
  const std::unique_ptr<DIR, Close> directory(::opendir(path));
  while (const dirent* entry = directory ? ::readdir(directory.get()) : nullptr) {
    if (entry->d_name[0] >= '1' && entry->d_name[0] <= '9')
      numbers.push_back(::atoi(entry->d_name));
  }
  return numbers;
}

// The name may contain any character, so skip it first.
ProcessStat read_stat(const char* path) {
  std::array<char, 1024> buffer;
  const std::string_view text = read_small(path, buffer);
  const size_t name_end = text.rfind(')');
  ProcessStat stat;
  if (name_end == std::string_view::npos || name_end + 2 >= text.size()) return stat;
  constexpr int kParent = 4, kThreads = 20, kStarted = 22;
  const char* at = text.data() + name_end + 3;
  for (int field = kParent; field <= kStarted; ++field) {
    char* end = nullptr;
    const long long value = ::strtoll(at, &end, 10);
    if (end == at) return stat;
    if (field == kParent) stat.parent = static_cast<pid_t>(value);
    if (field == kThreads) stat.threads = value;
    if (field == kStarted) stat.started_ticks = value;
    at = end;
  }
  stat.state = text[name_end + 2];
  return stat;
}

std::vector<pid_t> descendants(pid_t root) {
  std::unordered_map<pid_t, std::vector<pid_t>> children;
  for (pid_t pid : numbers_in("/proc")) {
    const ProcessStat stat = read_stat(("/proc/" + std::to_string(pid) + "/stat").c_str());
    if (stat.parent != 0) children[stat.parent].push_back(pid);
  }
  std::vector<pid_t> found{root};
  for (size_t i = 0; i < found.size(); ++i) {
    auto below = children.find(found[i]);
    if (below == children.end()) continue;
    std::vector<pid_t> pids = std::move(below->second);
    children.erase(below);  // pids may be reused during the walk: avoid cycles
    found.insert(found.end(), pids.begin(), pids.end());
  }
  found.erase(found.begin());
  return found;
}

void kill_descendants(pid_t root) {
  std::set<pid_t> killed;
  for (int pass = 0; pass < kMaxPasses; ++pass) {
    bool any_new = false;
    for (pid_t pid : descendants(root)) {
      if (!killed.insert(pid).second) continue;
      ::kill(pid, SIGKILL);
      any_new = true;
    }
    if (!any_new) return;
  }
}

}  // namespace moorage::warden
