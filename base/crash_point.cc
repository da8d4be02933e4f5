#include "base/crash_point.h"

#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <charconv>
#include <chrono>
#include <cstdlib>
#include <string>
#include <thread>

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

struct Pause {
  std::string name;
  std::string path;
};

const Pause& pause_wish() {
  static const Pause parsed = [] {
    const char* variable = getenv("MOORAGE_PAUSE_AT");
    const std::string text = variable ? variable : "";
    const size_t equals = text.find('=');
    if (equals == std::string::npos) return Pause{};
    return Pause{text.substr(0, equals), text.substr(equals + 1)};
  }();
  return parsed;
}

void pause_while_wished() {
  const std::string& path = pause_wish().path;
  if (access(path.c_str(), F_OK) != 0) return;
  const std::string reached = path + ".reached";
  const int made = open(reached.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
  if (made >= 0) close(made);
  const auto end = std::chrono::steady_clock::now() + std::chrono::minutes(1);
  while (access(path.c_str(), F_OK) == 0 && std::chrono::steady_clock::now() < end)
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
}

}  // namespace

CrashPoint::CrashPoint(std::string_view name) : name_(name) {
  names().push_back(name);
  armed_ = wish().name == name;
  pauses_ = pause_wish().name == name;
}

void CrashPoint::pass() {
  if (pauses_) pause_while_wished();
  if (!armed_) return;
  if (--wish().passings_left != 0) return;
  kill(getpid(), SIGKILL);
  for (;;) pause();  // the signal is on its way; nothing more may happen
}

std::vector<std::string_view> crash_point_names() { return names(); }

}  // namespace moorage::base
