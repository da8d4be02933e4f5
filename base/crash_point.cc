#include "base/crash_point.h"

#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <charconv>
#include <cstdlib>

namespace moorage::base {
namespace {

// Functions, not globals: crash points of other files register before this file's statics exist.
std::vector<std::string_view>& names() {
  static std::vector<std::string_view> all;
  return all;
}

struct Wish {
  std::string_view name;
  std::atomic<int> passings_left{1};
};

// One name at a time can be wished for, so one count is enough.
Wish& wish() {
  static Wish parsed;
  static const bool done = [] {
    const char* variable = getenv("MOORAGE_CRASH_AT");
    if (!variable) return true;
    std::string_view text = variable;
    size_t colon = text.rfind(':');
    parsed.name = text.substr(0, colon);
    int count = 1;
    if (colon != std::string_view::npos) {
      std::from_chars(text.data() + colon + 1, text.data() + text.size(), count);
    }
    parsed.passings_left = count;
    return true;
  }();
  (void)done;
  return parsed;
}

}  // namespace

CrashPoint::CrashPoint(std::string_view name) : name_(name) {
  names().push_back(name);
  armed_ = wish().name == name;
}

void CrashPoint::pass() {
  if (!armed_) return;
  if (--wish().passings_left != 0) return;
  kill(getpid(), SIGKILL);
  for (;;) pause();  // the signal is on its way; nothing more may happen
}

std::vector<std::string_view> crash_point_names() { return names(); }

}  // namespace moorage::base
