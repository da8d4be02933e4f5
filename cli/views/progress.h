// The progress of a long verb on standard error: a line that rewrites itself on a terminal, one
// plain line for each phase elsewhere, nothing with --json. A phase that took a moment leaves a
// line: " fetch    acme/shop main 4f1c2e9   2.6 s".
#pragma once

#include <chrono>
#include <functional>
#include <string>

#include "cli/client/context.h"

namespace moorage::cli {

class Stopwatch {
 public:
  std::chrono::milliseconds passed() const {
    return std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now() - began_);
  }
  std::string took() const { return format_took(passed().count()); }  // "2.6 s"

 private:
  using Clock = std::chrono::steady_clock;
  Clock::time_point began_ = Clock::now();
};

class Progress {
 public:
  explicit Progress(const Context& context) : context_(context) {}
  ~Progress() { clear_line(); }
  Progress(Progress&&) = delete;

  // For Api::send_long; borrows this.
  std::function<void(const Json&)> sink();
  void update(const std::string& phase, int64_t percent,
              const std::string& text);  // percent -1: none
  void finish();                         // ends the current phase

 private:
  void show_line();
  void clear_line();
  void write(std::string_view text) const;

  const Context& context_;
  std::string phase_;
  std::string text_;
  int64_t percent_ = -1;
  Stopwatch phase_watch_;
  std::chrono::steady_clock::time_point shown_{};
};

}  // namespace moorage::cli
