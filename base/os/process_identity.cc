// Process identities that survive a daemon restart (base/os/process.h), from /proc/PID/stat
// (proc(5)).
#include <charconv>
#include <string>

#include "base/error.h"
#include "base/os/files.h"
#include "base/os/process.h"

namespace moorage::base {
namespace {

constexpr uint64_t kExiting = 0x4;  // PF_EXITING of linux/sched.h: it is dying

struct Stat {
  char state = 0;  // 0: no such process
  uint64_t flags = 0;
  uint64_t start_ticks = 0;
};

Stat read_stat(int pid) {
  if (pid <= 0) return {};
  const std::string text = read_proc_file(pid, "stat");
  // Field 2, the name in parentheses, may contain anything; the last parenthesis closes it.
  size_t at = text.rfind(')');
  if (at == std::string::npos || at + 2 >= text.size()) return {};
  Stat stat;
  stat.state = text[at + 2];
  at += 2;
  for (int field = 3; field < 22; ++field) {
    at = text.find(' ', at + 1);
    if (at == std::string::npos) return {};
    uint64_t* number = field + 1 == 9 ? &stat.flags : field + 1 == 22 ? &stat.start_ticks : nullptr;
    if (number) std::from_chars(text.data() + at + 1, text.data() + text.size(), *number);
  }
  return stat;
}

}  // namespace

const std::string& boot_id() {
  static const std::string id = [] {
    std::string text = read_file("/proc/sys/kernel/random/boot_id");
    while (!text.empty() && text.back() == '\n') text.pop_back();
    return text;
  }();
  return id;
}

std::string read_proc_file(int pid, const std::string& name) {
  try {
    return read_file("/proc/" + std::to_string(pid) + "/" + name);
  } catch (const Error&) {
    return {};
  }
}

ProcessIdentity identify_process(int pid) { return {pid, read_stat(pid).start_ticks}; }

bool process_alive(const ProcessIdentity& identity) {
  Stat stat = read_stat(identity.pid);
  if (stat.state == 0 || stat.state == 'Z' || stat.state == 'X') return false;
  if ((stat.flags & kExiting) != 0) return false;
  return identity.start_ticks != 0 && stat.start_ticks == identity.start_ticks;
}

}  // namespace moorage::base
