// Forwards our signals to the command in the sandbox, on a thread of its own, or leaves the command
// running on those in `leaving`. Ctrl-C is INT; a second one within a second cancels the command. A
// signal that was ignored when we started (nohup, a job of a script) stays ignored. The signals are
// blocked in every thread started later: create this first.
#pragma once

#include <csignal>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "base/os/fd.h"
#include "cli/client/http_client.h"

namespace moorage::cli {

struct ForwardPlan {
  std::string socket_path;
  std::vector<int> signals;  // forwarded
  int for_term = SIGTERM;    // instead of TERM
  std::vector<int> leaving;  // calls on_leave for these, on the forwarding thread
  std::function<void(int signal)> on_leave;
  int window_fd = -1;  // the command's terminal gets the size of this one
  // Called on the forwarding thread when Ctrl-C cannot be delivered.
  std::function<void()> on_nobody;
};

bool is_ignored(int signal);  // by this process

class SignalForwarder {
 public:
  explicit SignalForwarder(ForwardPlan plan);
  ~SignalForwarder();
  SignalForwarder(SignalForwarder&&) = delete;

  void set_exec(const std::string& exec);  // sends the signals received so far

 private:
  void run();
  void handle(int signal);
  void take_posts();
  void post(const std::string& rest, const std::string& body);
  void wake();

  ForwardPlan plan_;
  HttpConnection connection_;
  sigset_t blocked_{};
  sigset_t before_{};
  Fd signals_;  // a signalfd
  Fd wake_;     // an eventfd

  std::mutex mutex_;  // guards the members below
  std::string exec_;
  struct Post {
    std::string rest;
    std::string body;
  };
  std::vector<Post> posts_;
  bool stopping_ = false;

  int64_t last_interrupt_ms_ = -1;
  std::thread thread_;  // last: uses the other members
};

}  // namespace moorage::cli
