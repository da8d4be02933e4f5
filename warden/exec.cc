#include "warden/exec.h"

#include <errno.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>

#include "base/error.h"
#include "warden/process_tree.h"

namespace moorage::warden {
namespace {

using base::FrameKind;
using std::chrono::milliseconds;

constexpr auto kStartDeadline = milliseconds(20'000);
constexpr auto kCheckAgain = milliseconds(50);

int64_t to_ms(const timeval& time) { return time.tv_sec * 1000 + time.tv_usec / 1000; }

}  // namespace

Exec::Exec(Loop& loop, Command command, ExecOptions options, std::unique_ptr<OutputSink> sink,
           LateOutput& late, Events events)
    : loop_(loop),
      command_(std::move(command)),
      options_(std::move(options)),
      sink_(std::move(sink)),
      late_(late),
      events_(std::move(events)),
      start_deadline_(loop),
      deadline_(loop),
      kill_again_(loop),
      resume_(loop),
      next_check_(loop) {
  // In a round of its own: a sink may call back during our write to it.
  sink_->on_ready([this] { resume_.start(milliseconds(0), [this] { pause_or_resume(); }); });
}

void Exec::start(const SpawnContext& context) {
  started_ms_ = monotonic_ms();
  started_boot_ns_ = boot_ns();
  spawned_ = spawn(command_, context);
  if (command_.subreaper) {
    subreaper_ = spawned_.child;
  } else if (!command_.terminal) {
    pid_ = spawned_.child;
  }
  command_.join_fds.clear();
  if (spawned_.input && (command_.input || command_.terminal)) {
    input_ = std::make_unique<InputQueue>(loop_, std::move(spawned_.input),
                                          command_.terminal.has_value());
  }
  outputs_[0].kind = command_.terminal ? FrameKind::terminal : FrameKind::standard_output;
  outputs_[1].kind = FrameKind::standard_error;
  outputs_[0].fd = std::move(spawned_.output);
  outputs_[1].fd = std::move(spawned_.error);
  status_watch_ = std::make_unique<Watch>(loop_, spawned_.status.get(), EPOLLIN,
                                          [this](uint32_t) { on_status(); });
  start_deadline_.start(kStartDeadline, [this] {
    failure_ = StatusRecord{StartStep::pid, ETIMEDOUT};
    kill_all();
  });
  if (options_.timeout_ms <= 0) return;
  deadline_.start(milliseconds(options_.timeout_ms), [this] {
    timed_out_ = true;
    kill_all();
  });
}

void Exec::on_status() {
  StatusRecord record;
  for (;;) {
    ssize_t count = ::read(spawned_.status.get(), &record, sizeof record);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0 && errno == EAGAIN) return;
    if (count != sizeof record) break;
    if (record.step == StartStep::pid) {
      pid_ = record.value;
    } else {
      failure_ = record;
    }
  }
  status_watch_.reset();
  spawned_.status.reset();
  start_deadline_.stop();
  // No pid and no failure: killed before its first step.
  if (!failure_ && pid_ == 0) failure_ = StatusRecord{StartStep::session, 0};
  if (failure_) return on_start_failed(*failure_);
  on_running();
}

void Exec::on_running() {
  state_ = State::running;
  sink_->started(pid(), command_.merged);
  events_.started(pid(), {});
  for (Output& output : outputs_) {
    if (!output.fd) continue;
    output.watch = std::make_unique<Watch>(loop_, output.fd.get(), 0,
                                           [this, &output](uint32_t) { pump(output); });
  }
  pause_or_resume();
  if (early_end_) return main_ended(early_end_->status, early_end_->usage);
  if (!spawned_.report) return;
  report_watch_ = std::make_unique<Watch>(loop_, spawned_.report.get(), EPOLLIN,
                                          [this](uint32_t) { on_report(); });
}

void Exec::on_start_failed(StatusRecord record) {
  StartFailure failure = explain_failure(command_, record);
  deadline_.stop();
  kill_again_.stop();
  end_input();
  for (Output& output : outputs_) output.fd.reset();
  end_.code = failure.exit_code;
  end_.error = failure.text;
  end_.failure = failure.word;
  end_.wall_ms = monotonic_ms() - started_ms_;
  if (timed_out_) end_.kind = "timed_out";
  state_ = State::draining;
  pid_ = 0;
  events_.started(0, failure);
  finish();
}

void Exec::on_report() {
  SubreaperReport report;
  ssize_t count = ::read(spawned_.report.get(), &report, sizeof report);
  if (count < 0 && (errno == EAGAIN || errno == EINTR)) return;
  report_watch_.reset();
  spawned_.report.reset();
  // End of file: the subreaper was killed. The command is our child now and will be reaped as such.
  if (count == sizeof report && state_ == State::running) main_ended(report.status, report.usage);
}

void Exec::process_ended(pid_t pid, int status, const rusage& usage) {
  const bool is_subreaper = pid == subreaper_;
  // The pid of a command with a terminal is in the pipe, possibly unread.
  if (state_ == State::starting && pid_ == 0) on_status();
  if (!is_subreaper && pid != pid_) return;
  // A dead process writes no more: the pipes now contain the rest, in the order of events.
  if (state_ == State::starting) on_status();
  if (state_ == State::starting && !is_subreaper) {  // the session leader still holds the pipe
    early_end_ = SubreaperReport{status, usage};
  } else if (is_subreaper) {
    subreaper_ = 0;
    if (report_watch_) on_report();
    if (state_ == State::running && ::kill(pid_, 0) != 0) {
      end_.error = "its exit status is unknown: the process that waited for it was killed, too";
      main_ended(SIGKILL, usage);
    }
  } else if (state_ == State::running) {
    main_ended(status, usage);
  }
}

void Exec::end_input() {
  if (!input_) return;
  input_->command_ended();
  if (!command_.terminal) end_.input_read = input_->read_bytes();
}

void Exec::main_ended(int status, const rusage& usage) {
  state_ = State::draining;
  deadline_.stop();
  kill_again_.stop();
  if (WIFSIGNALED(status)) {
    end_.kind = "signalled";
    end_.signal = WTERMSIG(status);
  } else {
    end_.code = WEXITSTATUS(status);
  }
  if (timed_out_) {
    end_.kind = "timed_out";
    end_.code = -1;
  }
  end_.user_ms = to_ms(usage.ru_utime);
  end_.system_ms = to_ms(usage.ru_stime);
  end_.max_rss_bytes = usage.ru_maxrss * 1024;
  end_.wall_ms = monotonic_ms() - started_ms_;
  end_input();
  begin_drain();
}

void Exec::pump(Output& output) {
  ssize_t count = ::read(output.fd.get(), io_buffer().data(), io_buffer().size());
  if (count < 0 && errno == EINTR) return;
  if (count < 0 && errno == EAGAIN) {
    output.left = 0;
    return;
  }
  if (count <= 0 && command_.terminal && state_ == State::running) {
    // EIO: no one has the terminal open, but its session may open /dev/tty again.
    output.watch->set_events(0);
    resume_.start(kCheckAgain, [this] { pause_or_resume(); });
    return;
  }
  if (count <= 0) {  // no writers are left
    output.watch.reset();
    output.fd.reset();
    output.left = 0;
    if (state_ == State::draining) drain();
    return;
  }
  output.left -= std::min(output.left, static_cast<size_t>(count));
  if (state_ == State::draining) last_sign_ms_ = monotonic_ms();
  sink_->write(output.kind, {io_buffer().data(), static_cast<size_t>(count)});
  if (!sink_->ready()) pause_or_resume();
}

void Exec::pause_or_resume() {
  for (Output& output : outputs_) {
    if (output.watch) output.watch->set_events(sink_->ready() ? uint32_t{EPOLLIN} : 0u);
  }
  if (!sink_->ready() || state_ != State::draining) return;
  if (end_given_) {
    finish();
  } else {
    drain();
  }
}

void Exec::finish() {
  if (state_ == State::over) return;
  if (!end_given_) {
    end_given_ = true;
    next_check_.stop();
    sink_->end(end_);
  }
  if (!sink_->settled()) return;  // on_ready comes back here
  state_ = State::over;
  resume_.stop();
  leave_late_output();
  report_watch_.reset();
  spawned_.report.reset();
  options_.kill_fd.reset();
  input_.reset();
  events_.over();
}

}  // namespace moorage::warden
