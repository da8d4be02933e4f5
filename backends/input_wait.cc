#include "backends/input_wait.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cstdint>
#include <optional>
#include <sstream>

#include "base/error.h"
#include "base/os/fd.h"
#include "base/os/files.h"
#include "base/os/process.h"

namespace moorage::backends {
namespace {

constexpr size_t kMostDescriptors = 4096;  // of a warden

std::string proc(pid_t pid, const std::string& rest) {
  return "/proc/" + std::to_string(pid) + "/" + rest;
}

std::string link_text(const std::string& path) {
  std::array<char, 256> text{};
  const ssize_t size = readlink(path.c_str(), text.data(), text.size());
  return size > 0 ? std::string(text.data(), static_cast<size_t>(size)) : std::string();
}

std::string number_of_terminal(const std::string& fdinfo) {
  std::istringstream lines(fdinfo);
  std::string name;
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::string number;
    if (words >> name >> number && name == "tty-index:") return number;
  }
  return {};
}

// The only descriptor of a poll.
std::optional<int> polled(pid_t pid, uint64_t address) {
  pollfd entry{};
  const Fd memory(open(proc(pid, "mem").c_str(), O_RDONLY | O_CLOEXEC));
  const auto place = static_cast<off_t>(address);
  if (!memory || pread(memory.get(), &entry, sizeof entry, place) != sizeof entry)
    return std::nullopt;
  if ((entry.events & POLLIN) == 0) return std::nullopt;
  return entry.fd;
}

// The single descriptor that the process is blocked reading.
std::optional<int> blocked_on(pid_t pid, const std::string& call) {
  std::istringstream words(call);
  long number = -1;
  uint64_t first = 0;
  uint64_t second = 0;
  if (!(words >> number >> std::hex >> first >> second)) return std::nullopt;
  switch (number) {
    case SYS_read:
    case SYS_readv:
      return static_cast<int>(first);
#ifdef SYS_select
    case SYS_select:
#endif
    case SYS_pselect6:
      return first == 1 ? std::optional(0) : std::nullopt;  // descriptors below 1
#ifdef SYS_poll
    case SYS_poll:
#endif
    case SYS_ppoll:
      return second == 1 ? polled(pid, first) : std::nullopt;
    default:
      return std::nullopt;
  }
}

bool is_input(const std::string& name, const InputEnds& ends) {
  if (name.starts_with("pipe:")) return ends.pipes.contains(name);
  const size_t slash = name.rfind('/');
  const bool terminal = slash != std::string::npos && name.substr(0, slash).ends_with("pts");
  return terminal && ends.terminals.contains(name.substr(slash + 1));
}

}  // namespace

InputEnds input_ends(pid_t warden) {
  InputEnds ends;
  std::vector<std::string> descriptors;
  try {
    descriptors = base::list_directory(proc(warden, "fd"));
  } catch (const Error&) {
    return ends;
  }
  if (descriptors.size() > kMostDescriptors) descriptors.resize(kMostDescriptors);
  for (const std::string& fd : descriptors) {
    const std::string name = link_text(proc(warden, "fd/" + fd));
    if (name.starts_with("pipe:")) ends.pipes.insert(name);
    if (!name.ends_with("ptmx")) continue;
    ends.terminals.insert(number_of_terminal(base::read_proc_file(warden, "fdinfo/" + fd)));
  }
  return ends;
}

bool waits_for_input(const std::vector<pid_t>& processes, const InputEnds& ends) {
  bool waits = false;
  for (const pid_t pid : processes) {
    const std::string call = base::read_proc_file(pid, "syscall");
    if (call.starts_with("running")) return false;
    const auto fd = blocked_on(pid, call);
    if (!fd || *fd < 0) continue;
    waits = waits || is_input(link_text(proc(pid, "fd/" + std::to_string(*fd))), ends);
  }
  return waits;
}

}  // namespace moorage::backends
