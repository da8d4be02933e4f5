// Sends the signals that we get to the command that we stand for, on a thread of its own, or leaves
// the command running because of them. Ctrl-C is INT; a second one within a second cancels the
// command for good. A signal that we were started to ignore (nohup, a job of a script) stays
// ignored. While it lives the signals are blocked in every thread that is started later: make it
// first.
#pragma once

#include <csignal>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "base/fd.h"
#include "cli/http_client.h"

namespace moorage::cli {

struct ForwardPlan {
  std::string socket_path;
  std::vector<int> signals;  // of ours that are forwarded
  std::vector<int> leaving;  // of ours that on_leave is called for, on the forwarding thread
  std::function<void(int signal)> on_leave;
  int window_fd = -1;  // this terminal's size follows to the command's
  // Called on the forwarding thread when a Ctrl-C finds nobody to forward to.
  std::function<void()> on_nobody;
};

bool is_ignored(int signal);  // by this process

class SignalForwarder {
 public:
  explicit SignalForwarder(ForwardPlan plan);
  ~SignalForwarder();
  SignalForwarder(const SignalForwarder&) = delete;
  SignalForwarder& operator=(const SignalForwarder&) = delete;

  void set_exec(const std::string& exec);  // signals that came before are sent now

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
  base::Fd signals_;  // a signalfd
  base::Fd wake_;     // an eventfd

  std::mutex mutex_;  // guards what follows
  std::string exec_;
  struct Post {
    std::string rest;
    std::string body;
  };
  std::vector<Post> posts_;
  bool stopping_ = false;

  int64_t last_interrupt_ms_ = -1;
  std::thread thread_;  // last: starts when all else is there
};

}  // namespace moorage::cli
