#include "base/crash_point.h"

#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <charconv>
#include <chrono>
#include <cstdlib>
#include <map>
#include <sstream>
#include <string>
#include <thread>

namespace moorage::base {
namespace {

// Functions, not globals: crash points of other files register before these statics exist.
std::vector<std::string_view>& names() {
  static std::vector<std::string_view> all;
  return all;
}

struct Wish {
  std::string_view name;
  std::atomic<int> passings_left{1};
};

// One count is enough: only one name can be requested at a time.
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

const std::map<std::string, std::string, std::less<>>& pause_wishes() {
  static const auto parsed = [] {
    std::map<std::string, std::string, std::less<>> paths;
    const char* variable = getenv("MOORAGE_PAUSE_AT");
    std::istringstream text(variable ? variable : "");
    for (std::string wish; std::getline(text, wish, ',');) {
      const size_t equals = wish.find('=');
      if (equals != std::string::npos) paths[wish.substr(0, equals)] = wish.substr(equals + 1);
    }
    return paths;
  }();
  return parsed;
}

void pause_while_there(const std::string& path) {
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
  const auto pause = pause_wishes().find(name);
  if (pause != pause_wishes().end()) pause_ = &pause->second;
}

void CrashPoint::pass() {
  if (pause_) pause_while_there(*pause_);
  if (!armed_) return;
  if (--wish().passings_left != 0) return;
  kill(getpid(), SIGKILL);
  for (;;) pause();  // the signal is coming; nothing more may happen
}

std::vector<std::string_view> crash_point_names() { return names(); }

}  // namespace moorage::base
