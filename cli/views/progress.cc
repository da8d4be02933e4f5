#include "cli/views/progress.h"

#include "base/os/fd.h"

namespace moorage::cli {

using std::chrono::steady_clock;

std::function<void(const Json&)> Progress::sink() {
  return [this](const Json& json) {
    update(json.text("phase"), json.number("percent", -1), json.text("text"));
  };
}

void Progress::update(const std::string& phase, int64_t percent, const std::string& text) {
  constexpr std::chrono::milliseconds kRedraw{100};
  const auto now = steady_clock::now();
  const bool fresh = phase != phase_;
  if (fresh) {
    finish();
    phase_ = phase;
    phase_watch_ = {};
  }
  text_ = text;
  percent_ = percent;
  if (context_.terminal.err && (fresh || now - shown_ >= kRedraw)) show_line();
}

void Progress::finish() {
  constexpr std::chrono::milliseconds kWorthALine{200};
  clear_line();
  if (phase_.empty()) return;
  if (phase_watch_.passed() >= kWorthALine && !context_.json)
    write(label_line(phase_, text_ + "   " + phase_watch_.took()));
  phase_.clear();
}

void Progress::show_line() {
  if (context_.json) return;
  shown_ = steady_clock::now();
  std::string text = percent_ < 0 ? text_ : std::to_string(percent_) + "%  " + text_;
  const auto columns = static_cast<size_t>(window_size(STDERR_FILENO).columns);
  std::string line = label_line(phase_, text);
  line.pop_back();
  write("\r\x1b[K" + shorten(line, columns > 1 ? columns - 1 : columns));
}

void Progress::clear_line() {
  if (context_.terminal.err && shown_ != steady_clock::time_point{}) write("\r\x1b[K");
  shown_ = {};
}

void Progress::write(std::string_view text) const {
  try {
    base::write_all(STDERR_FILENO, text);
  } catch (const Error&) {
    // A failure to print progress must not stop the verb.
  }
}

}  // namespace moorage::cli
