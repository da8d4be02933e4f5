// The passive part of backend_probe: the view from inside a sandbox, one line per fact, in words
// that are the same in every sandbox of one kind.
#include "probe_view.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <set>
#include <sstream>
#include <string>
#include <vector>

namespace {

void tell(const std::string& name, const std::string& value) {
  std::printf("%s %s\n", name.c_str(), value.empty() ? "-" : value.c_str());
}

std::vector<std::string> entries(const std::string& path) {
  std::vector<std::string> names;
  DIR* directory = opendir(path.c_str());
  if (!directory) return {strerrorname_np(errno)};
  while (const dirent* entry = readdir(directory)) {
    const std::string name = entry->d_name;
    if (name != "." && name != "..") names.push_back(name);
  }
  closedir(directory);
  std::sort(names.begin(), names.end());
  return names;
}

std::string joined(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : " ") + word;
  return text;
}

std::string contents(const std::string& path) {
  std::ifstream file(path);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

std::string first_line(const std::string& path) {
  const std::string text = contents(path);
  return text.substr(0, text.find('\n'));
}

void tell_own_process() {
  std::istringstream status(contents("/proc/self/status"));
  const std::set<std::string> told{"CapInh", "CapPrm", "CapEff", "CapBnd",  "CapAmb", "NoNewPrivs",
                                   "Uid",    "Gid",    "Groups", "Seccomp", "Umask"};
  for (std::string line; std::getline(status, line);) {
    const size_t colon = line.find(':');
    if (!told.contains(line.substr(0, colon))) continue;
    std::istringstream words(line.substr(colon + 1));
    std::vector<std::string> values;
    for (std::string word; words >> word;) values.push_back(word);
    tell("own-" + line.substr(0, colon), joined(values));
  }
  // The mapped host ids differ between sandboxes, except for the host's own.
  for (const char* map : {"uid_map", "gid_map"}) {
    std::istringstream lines(contents(std::string("/proc/self/") + map));
    std::vector<std::string> ranges;
    unsigned long inside = 0;
    unsigned long outside = 0;
    unsigned long count = 0;
    while (lines >> inside >> outside >> count) {
      ranges.push_back(std::to_string(inside) + (outside < 65536 ? "=host" : "=own") + "*" +
                       std::to_string(count));
    }
    tell(std::string("own-") + map, joined(ranges));
  }
  tell("own-oom_score_adj", first_line("/proc/self/oom_score_adj"));
  tell("own-descriptors", std::to_string(entries("/proc/self/fd").size()));
}

void tell_resource_limits() {
  std::istringstream limits(contents("/proc/self/limits"));
  std::string line;
  std::getline(limits, line);
  while (std::getline(limits, line)) {
    std::string name = line.substr(0, line.find("  "));
    std::replace(name.begin(), name.end(), ' ', '-');
    std::istringstream values(line.substr(26));
    std::string soft;
    std::string hard;
    values >> soft >> hard;
    tell("limit-" + name, soft + " " + hard);
  }
}

std::string reading(const std::string& path) {
  const int fd = open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC);
  if (fd < 0) return strerrorname_np(errno);
  char byte = 0;
  const ssize_t size = read(fd, &byte, 1);
  const std::string result = size < 0 ? strerrorname_np(errno) : size == 0 ? "empty" : "read";
  close(fd);
  return result;
}

void tell_files() {
  for (const char* path : {"/",          "/dev",         "/dev/pts",
                           "/dev/shm",   "/etc/ssl",     "/home",
                           "/.moorage",  "/root",        "/run",
                           "/sys",       "/sys/devices", "/sys/devices/system",
                           "/tmp",       "/var",         "/var/log",
                           "/var/tmp",   "/proc/sys",    "/proc/fs",
                           "/proc/bus",  "/proc/irq",    "/proc/driver",
                           "/proc/acpi", "/proc/scsi"}) {
    tell(std::string("list:") + path, joined(entries(path)));
  }
  for (const std::string& name : entries("/proc")) {
    const std::string path = "/proc/" + name;
    struct stat info {};
    if (lstat(path.c_str(), &info) == 0 && S_ISREG(info.st_mode))
      tell("read:" + path, reading(path));
  }
  for (const char* path : {"/etc/shadow", "/etc/machine-id", "/etc/resolv.conf", "/proc/1/cmdline",
                           "/proc/1/environ", "/proc/1/maps", "/proc/1/root", "/dev/kmsg",
                           "/dev/mem", "/dev/fuse", "/sys/kernel/notes", "/sys/firmware"}) {
    tell(std::string("read:") + path, reading(path));
  }
  for (const char* path :
       {"/", "/dev", "/dev/shm", "/etc", "/home", "/home/user", "/mnt", "/opt", "/proc", "/root",
        "/run", "/srv", "/sys", "/tmp", "/usr", "/var", "/var/log", "/var/tmp", "/workspace"}) {
    tell(std::string("write:") + path, access(path, W_OK) == 0 ? "ok" : strerrorname_np(errno));
  }
}

// The mounts: where, what, and their restrictions.
void tell_mounts() {
  std::istringstream table(contents("/proc/self/mountinfo"));
  std::vector<std::string> lines;
  for (std::string line; std::getline(table, line);) {
    std::istringstream fields(line);
    std::string skip;
    std::string place;
    std::string options;
    std::string type;
    fields >> skip >> skip >> skip >> skip >> place >> options;
    while (fields >> skip && skip != "-") {
    }
    fields >> type;
    std::string kept;
    std::istringstream words(options);
    for (std::string word; std::getline(words, word, ',');) {
      if (word == "ro" || word == "nosuid" || word == "nodev" || word == "noexec") {
        kept += "," + word;
      }
    }
    lines.push_back("mount:" + place + " " + type + kept);
  }
  std::sort(lines.begin(), lines.end());
  for (const std::string& line : lines) std::printf("%s\n", line.c_str());
}

void tell_neighbours() {
  std::vector<std::string> processes;
  for (const std::string& name : entries("/proc")) {
    if (name.find_first_not_of("0123456789") != std::string::npos) continue;
    if (name == std::to_string(getpid())) continue;
    processes.push_back(first_line("/proc/" + name + "/comm"));
  }
  tell("processes", joined(processes));
  std::istringstream devices(contents("/proc/net/dev"));
  std::vector<std::string> names;
  for (std::string line; std::getline(devices, line);) {
    const size_t colon = line.find(':');
    if (colon == std::string::npos) continue;
    names.push_back(line.substr(line.find_first_not_of(' '), colon - line.find_first_not_of(' ')));
  }
  tell("interfaces", joined(names));
  char host[256] = {};
  gethostname(host, sizeof host - 1);
  tell("hostname", host);
  tell("cgroup",
       contents("/proc/self/cgroup").find("moorage") == std::string::npos ? "-" : "named");
}

}  // namespace

void tell_view() {
  tell_own_process();
  tell_resource_limits();
  tell_files();
  tell_mounts();
  tell_neighbours();
}
