// One command from start to end. It ends with its main process, or a moment later if other
// processes hold its pipes: if their last output comes soon it is read to the end (exec_drain.cc);
// later output is recorded as late output (warden/output/late_output.h). States go one way:
//
//   starting --> running --> draining --> over        (starting --> over: it could not start)
//
// Owned by ProcessService, which `over` notifies; it may destroy the exec only after that call
// returns.
#pragma once

#include <array>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "warden/activity.h"
#include "warden/input_queue.h"
#include "warden/io/loop.h"
#include "warden/output/late_output.h"
#include "warden/output/output_sink.h"
#include "warden/spawn.h"
#include "warden/subreaper.h"

namespace moorage::warden {

struct ExecOptions {
  std::string tag;
  int64_t timeout_ms = 0;  // 0: none
  Fd kill_fd;              // write "1" to kill all its processes; none: the subreaper kills
};

class Exec {
 public:
  enum class State { starting, running, draining, over };
  struct Events {
    // pid 0: it could not start, with the reason. Called once.
    std::function<void(uint32_t pid, const StartFailure&)> started;
    std::function<void()> over;
  };

  Exec(Loop& loop, Command command, ExecOptions options, std::unique_ptr<OutputSink> sink,
       LateOutput& late, Events events);
  void start(const SpawnContext& context);  // throws whatever spawn throws

  // Every exec gets every reaped process.
  void process_ended(pid_t pid, int status, const rusage& usage);

  // Throws not_found once the main process has ended, conflict without standard input.
  void send_input(std::optional<uint64_t> offset, std::string_view bytes, InputQueue::Reply reply);
  void close_input();
  void send_signal(int signal);  // to the process group; on a terminal: the foreground group
  void cancel();                 // SIGKILL to it and everything it started
  void resize(const TerminalSize& size);

  State state() const { return state_; }
  const std::string& tag() const { return options_.tag; }
  uint32_t pid() const { return static_cast<uint32_t>(pid_); }
  // Also after the command's end, while descendants run; 0: none (subreaper.h).
  pid_t subreaper() const { return subreaper_; }
  const Command& command() const { return command_; }

 private:
  struct Output {
    Fd fd;
    base::FrameKind kind{};
    std::unique_ptr<Watch> watch;
    size_t left = 0;  // draining: bytes waiting when the main process ended
  };
  void kill_all();
  void on_status();
  void on_report();
  void on_running();
  void on_start_failed(StatusRecord record);
  void main_ended(int status, const rusage& usage);
  void end_input();
  void pump(Output& output);
  void pause_or_resume();
  void begin_drain();
  void drain();
  void check_rest();
  void finish();
  void leave_late_output();
  void require_alive() const;

  Loop& loop_;
  Command command_;
  ExecOptions options_;
  std::unique_ptr<OutputSink> sink_;
  LateOutput& late_;
  Events events_;
  State state_ = State::starting;
  Spawned spawned_;
  pid_t pid_ = 0;
  pid_t subreaper_ = 0;  // 0: none, or gone
  int64_t started_ms_ = 0;
  int64_t started_boot_ns_ = 0;
  std::optional<SubreaperReport> early_end_;  // it ended before we knew it was running
  bool timed_out_ = false;
  std::optional<StatusRecord> failure_;
  ExecEnd end_;
  std::unique_ptr<InputQueue> input_;
  std::array<Output, 2> outputs_;
  std::unique_ptr<Watch> status_watch_;
  std::unique_ptr<Watch> report_watch_;
  Timer start_deadline_;
  Timer deadline_;
  Timer kill_again_;
  Timer resume_;
  Timer next_check_;
  std::optional<Activity> left_running_;
  int64_t drain_began_ms_ = 0;
  int64_t last_sign_ms_ = 0;  // draining: last time a byte came or a process ran
  int checks_ = 0;
  bool draining_now_ = false;
  bool end_given_ = false;
};

}  // namespace moorage::warden
