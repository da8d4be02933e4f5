#include "warden/process_tree.h"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#include <array>
#include <cstring>
#include <set>
#include <string>
#include <unordered_map>

#include "base/os/fd.h"

namespace moorage::warden {
namespace {

constexpr int kMaxPasses = 100;

struct Directory {
  DIR* handle;
  explicit Directory(const char* path) : handle(::opendir(path)) {}
  ~Directory() {
    if (handle) ::closedir(handle);
  }
};

// Field 4 of /proc/PID/stat, after the name, which may contain any character. 0: no such process.
pid_t parent_of(const char* pid) {
  std::string path = std::string("/proc/") + pid + "/stat";
  Fd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file) return 0;
  std::array<char, 256> text;
  ssize_t size = ::read(file.get(), text.data(), text.size() - 1);
  if (size <= 0) return 0;
  text[static_cast<size_t>(size)] = '\0';
  const char* name_end = std::strrchr(text.data(), ')');
  if (!name_end || std::strlen(name_end) < 5) return 0;
  return static_cast<pid_t>(std::strtol(name_end + 4, nullptr, 10));
}

}  // namespace

std::vector<pid_t> descendants(pid_t root) {
  std::unordered_map<pid_t, std::vector<pid_t>> children;
  Directory proc("/proc");
  if (!proc.handle) return {};
  while (const dirent* entry = ::readdir(proc.handle)) {
    if (entry->d_name[0] < '1' || entry->d_name[0] > '9') continue;
    auto pid = static_cast<pid_t>(std::strtol(entry->d_name, nullptr, 10));
    if (pid_t parent = parent_of(entry->d_name)) children[parent].push_back(pid);
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
