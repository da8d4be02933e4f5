#include "cli/stream/exec_session.h"

#include <poll.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <optional>
#include <utility>
#include <vector>

#include "base/error.h"
#include "cli/stream/signal_forwarder.h"
#include "cli/stream/stdin_pump.h"

namespace moorage::cli {
namespace {

using base::RecordKind;

constexpr int kReaderGone = 128 + SIGPIPE;

enum class Written { all, reader_gone, terminal_gone };

Written write_output(int fd, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(fd, bytes.data(), bytes.size());
    if (written > 0) bytes.remove_prefix(static_cast<size_t>(written));
    if (written >= 0 || errno == EINTR) continue;
    if (errno == EPIPE) return Written::reader_gone;
    if (errno == EIO) return Written::terminal_gone;
    if (errno != EAGAIN) base::throw_errno("write the output");
    pollfd polled{fd, POLLOUT, 0};
    ::poll(&polled, 1, -1);
  }
  return Written::all;
}

std::vector<int> forwarded_signals(Role role) {
  if (role == Role::runs) return {SIGINT, SIGQUIT, SIGTERM};
  if (role == Role::joins) return {SIGINT, SIGQUIT};
  return {};
}

std::vector<int> leaving_signals(Role role) {
  if (role == Role::runs) return {SIGHUP};
  if (role == Role::joins) return {SIGTERM, SIGHUP};
  return {SIGINT, SIGQUIT, SIGTERM, SIGHUP};
}

class Session {
 public:
  Session(Context& context, const SessionPlan& plan)
      : context_(context),
        plan_(plan),
        raw_wanted_(plan.tty && plan.forward_stdin && context.terminal.in),
        follower_(context.socket, follow_plan()) {
    std::signal(SIGPIPE, SIG_IGN);
    if (plan.role != Role::reads_logs) forwarder_.emplace(forward_plan());
  }

  SessionEnd run() {
    SessionEnd end;
    try {
      end.record = follower_.run();
      if (pump_) settle_input(end.record);
      end.how = end.record.has("state") ? SessionEnd::How::ended : SessionEnd::How::still_running;
    } catch (const Error&) {
      if (pump_ && !end.record.has("state")) pump_->leave();
      stop();
      if (left_ == Left::none) throw;
      if (left_ == Left::nobody || (left_ == Left::detached && exec_.empty())) throw_nobody();
      end.how = left_ == Left::detached ? SessionEnd::How::detached : SessionEnd::How::reader_gone;
    }
    stop();
    end.exec = exec_;
    end.may_run = plan_.role == Role::runs || plan_.role == Role::joins;
    end.left_by_signal = left_by_signal_;
    end.output = std::move(captured_);
    const std::string error = end.record.text("error");
    end.error_noted = !error.empty() && follower_.has_noted(error);
    return end;
  }

 private:
  enum class Left { none, detached, nobody, reader };

  // Threads first, then the terminal: raw mode must not garble what they print, and nothing may
  // read the terminal after the user has it back.
  void stop() {
    pump_.reset();
    forwarder_.reset();
    raw_.reset();
  }

  void leave(Left why) {
    left_ = why;
    follower_.abandon();
  }

  void leave_because_of(int signal) {
    left_by_signal_ = signal;
    leave(Left::detached);
  }

  [[noreturn]] void throw_nobody() const {
    if (exec_.empty()) {
      throw Error(Code::unknown_outcome, "gave up waiting for the command to start",
                  "moorage ps shows whether it runs");
    }
    throw Error(Code::unavailable, "the daemon does not answer; " + exec_ + " keeps running",
                "later: moorage attach " + exec_ + " | kill " + exec_);
  }

  FollowPlan follow_plan() {
    FollowPlan follow{plan_, {}, {}, {}};
    follow.on_started = [this](const std::string& exec) { started(exec); };
    follow.on_output = [this](RecordKind kind, std::string_view bytes) { output(kind, bytes); };
    follow.on_notice = [this](const std::string& text) {
      if (std::exchange(in_line_, false)) write_output(STDERR_FILENO, "\n");
      if (raw_) write_output(STDERR_FILENO, "\r");  // raw mode adds no carriage return
      context_.note(text);
    };
    return follow;
  }

  ForwardPlan forward_plan() {
    ForwardPlan forward;
    forward.socket_path = context_.socket;
    forward.signals = forwarded_signals(plan_.role);
    forward.for_term = plan_.for_term;
    forward.leaving = leaving_signals(plan_.role);
    forward.on_leave = [this](int signal) { leave_because_of(signal); };
    if (plan_.tty && context_.terminal.out) forward.window_fd = STDOUT_FILENO;
    forward.on_nobody = [this] { leave(Left::nobody); };
    return forward;
  }

  void started(const std::string& exec) {
    exec_ = exec;
    if (raw_wanted_) raw_.emplace(STDIN_FILENO);
    if (forwarder_) forwarder_->set_exec(exec);
    if (!plan_.forward_stdin) return;
    StdinPlan stdin_plan;
    stdin_plan.socket_path = context_.socket;
    stdin_plan.exec = exec;
    stdin_plan.fd = STDIN_FILENO;
    stdin_plan.offset = plan_.stdin_offset;
    stdin_plan.close_at_end = plan_.close_stdin_at_end;
    stdin_plan.share = plan_.share_stdin;
    if (raw_wanted_) stdin_plan.on_detach = [this] { leave(Left::detached); };
    stdin_plan.on_hangup = [this] {
      if (!is_ignored(SIGHUP)) leave_because_of(SIGHUP);
    };
    pump_.emplace(std::move(stdin_plan));
  }

  void settle_input(const Json& record) {
    std::optional<uint64_t> read;
    if (record.has("stdin_read")) read = static_cast<uint64_t>(record.number("stdin_read"));
    pump_->settle(read);
  }

  void output(RecordKind kind, std::string_view bytes) {
    const bool is_error = kind == RecordKind::standard_error;
    const bool shown = is_error ? plan_.show_stderr : plan_.show_stdout;
    if (!shown || reader_gone_) return;
    if (plan_.capture) return captured_.add(is_error, bytes);
    if (plan_.merged || kind != RecordKind::standard_output) in_line_ = !bytes.ends_with('\n');
    const auto written = write_output(is_error ? STDERR_FILENO : STDOUT_FILENO, bytes);
    if (written == Written::all) return;
    reader_gone_ = true;
    if (written == Written::terminal_gone) return leave_because_of(SIGHUP);
    // A dropped ssh connection looks the same as `| head -1`, and a build must survive it.
    leave(Left::reader);
  }

  Context& context_;
  const SessionPlan& plan_;
  const bool raw_wanted_;
  std::string exec_;
  std::atomic<Left> left_{Left::none};
  std::atomic<int> left_by_signal_{0};
  bool reader_gone_ = false;
  CapturedOutput captured_;
  OutputFollower follower_;
  std::optional<SignalForwarder> forwarder_;
  std::optional<RawMode> raw_;
  bool in_line_ = false;  // the command has begun a line on standard error or the terminal
  std::optional<StdinPump> pump_;
};

}  // namespace

SessionEnd run_session(Context& context, const SessionPlan& plan) {
  return Session(context, plan).run();
}

int finish_session(Context& context, const SessionEnd& end) {
  switch (end.how) {
    case SessionEnd::How::detached:
      context.note(end.exec + " keeps running; return: moorage attach " + end.exec);
      return end.left_by_signal == 0 ? 0 : 128 + end.left_by_signal;
    case SessionEnd::How::reader_gone:
      if (end.may_run) {
        context.note(end.exec + " keeps running; return: moorage attach " + end.exec +
                     "   end it: moorage kill " + end.exec);
      }
      return kReaderGone;
    case SessionEnd::How::still_running:
      return 0;
    case SessionEnd::How::ended:
      break;
  }
  if (context.json) {  // the record has all that the notices say
    context.print_json(json_with_output(end.record, end.output));
  } else {
    note_end(context, end.record, Reading::its_end, end.error_noted);
  }
  return exit_code_of(end.record);
}

}  // namespace moorage::cli
