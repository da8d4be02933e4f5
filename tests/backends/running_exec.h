// A running command in a sandbox, and its end. `finish`, or the destructor if the test gave up,
// kills its group, waits until it is empty and removes it.
#pragma once

#include <chrono>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "backends/backend.h"
#include "backends/envd_client.h"
#include "base/os/fd.h"
#include "base/wire/journal.h"

namespace moorage::tests {

struct Outcome {
  std::string kind;  // exited, signalled, timed_out
  int code = -1;
  int signal = 0;
  std::string output;    // all streams, in order
  std::string error;     // the part from standard error
  std::string terminal;  // the part from a terminal
  std::string text;      // the warden's message for a command that could not start
  uint64_t oom_kills = 0;
};

struct Command {
  std::vector<std::string> argv;
  std::map<std::string, std::string> environment{
      {"PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"},
      {"HOME", "/home/user"},
      {"LANG", "C.UTF-8"}};
  std::string user = "user";
  std::string directory = "/workspace";
  int64_t timeout_ms = 30'000;
  bool input = false;
  std::optional<backends::TerminalSize> terminal{};
};

class RunningExec {
 public:
  RunningExec(backends::Backend& backend, const std::string& sandbox, const std::string& journal,
              const std::string& tag, const Command& command);
  ~RunningExec();
  RunningExec(const RunningExec&) = delete;
  RunningExec& operator=(const RunningExec&) = delete;

  const std::string& tag() const { return tag_; }
  backends::EnvdClient& client() { return client_; }
  void send(const std::string& input);  // after all earlier input
  bool ended();
  // All its output so far.
  const std::string& output();
  bool wait_for(const std::string& text,
                std::chrono::milliseconds deadline = std::chrono::seconds(10));
  Outcome finish();

 private:
  void read();  // to the current end of the journal

  std::string tag_;
  backends::EnvdClient client_;
  std::unique_ptr<backends::ExecGroup> group_;
  std::chrono::milliseconds patience_;
  base::Fd journal_;
  base::JournalReader reader_{-1};
  Outcome outcome_;
  uint64_t sent_ = 0;
};

}  // namespace moorage::tests
