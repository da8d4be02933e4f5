// `top`: the current load of the workspaces, redrawn every two seconds. Without a terminal, or with
// --once, one table. The terminal is restored on every exit except SIGKILL.
#include <poll.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <condition_variable>
#include <mutex>
#include <thread>

#include "base/os/fd.h"
#include "cli/commands.h"
#include "cli/views/top_view.h"

namespace moorage::cli {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kFirstPause{500};  // until the first CPU share; also with --once
constexpr int kPatienceMs = 10'000;

struct TopOptions {
  std::string order = "cpu";
  std::string pause = "2s";
  bool own = false;
  bool once = false;

  void declare(Options& options) {
    options.value({"-s,--sort", "WHAT", "Sort by cpu, memory, disk or name"}, order);
    options.value({"-d,--delay", "TIME", "Refresh interval; default: 2s"}, pause);
    options.flag({"--mine", "", "Only your own workspaces"}, own);
    options.flag({"--once", "", "Print one table and exit"}, once);
  }
};

TopOrder order_of(const std::string& text) {
  constexpr std::array<std::string_view, 4> kNames{"cpu", "memory", "disk", "name"};
  const auto found = std::find(kNames.begin(), kNames.end(), text);
  if (found == kNames.end())
    throw Error(Code::invalid_argument,
                "--sort takes cpu, memory, disk or name, not '" + text + "'");
  return static_cast<TopOrder>(found - kNames.begin());
}

std::string target_of(bool own) { return own ? "/v1/top?mine=1" : "/v1/top"; }

// Polls the daemon on a thread of its own, so that keys work while the daemon is silent.
class Poller {
 public:
  Poller(const std::string& socket, bool own, milliseconds pause)
      : pause_(pause),
        own_(own),
        connection_(socket),
        news_(base::check(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK), "create an eventfd")),
        thread_([this] { run(); }) {}
  ~Poller() {
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    connection_.cancel();
    changed_.notify_all();
    thread_.join();
  }
  Poller(Poller&&) = delete;

  struct Seen {
    Json now, before;
    std::string trouble;
  };
  Seen seen() {
    eventfd_t ignored = 0;
    ::eventfd_read(news_.get(), &ignored);
    const std::lock_guard lock(mutex_);
    return seen_;
  }
  int news_fd() const { return news_.get(); }
  void set_own(bool own) {
    const std::lock_guard lock(mutex_);
    own_ = own;
    hurry_ = true;
    changed_.notify_all();
  }

 private:
  void run() {
    std::unique_lock lock(mutex_);
    for (bool first = true; !stopping_; first = false) {
      const bool own = own_;
      lock.unlock();
      poll(own);
      lock.lock();
      changed_.wait_for(lock, first ? kFirstPause : pause_, [this] { return stopping_ || hurry_; });
      hurry_ = false;
    }
  }

  void poll(bool own) {
    Json now;
    std::string trouble;
    try {
      const HttpResponse response =
          connection_.exchange({.target = target_of(own)}, {.silence_timeout_ms = kPatienceMs});
      if (!response.ok()) throw_api_error(response);
      now = Json::parse(response.body);
    } catch (const Error& error) {
      trouble = error.message() + "; retrying";
    }
    {
      const std::lock_guard lock(mutex_);
      seen_.trouble = trouble;
      if (trouble.empty()) {
        seen_.before = std::move(seen_.now);
        seen_.now = std::move(now);
      }
    }
    ::eventfd_write(news_.get(), 1);
  }

  const milliseconds pause_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool own_;
  bool hurry_ = false;
  bool stopping_ = false;
  Seen seen_;
  HttpConnection connection_;
  Fd news_;
  std::thread thread_;
};

// The alternate screen, without a cursor, from construction to destruction.
class OtherScreen {
 public:
  OtherScreen() : raw_(STDIN_FILENO) {
    base::write_all(STDOUT_FILENO, "\x1b[?1049h\x1b[?25l\x1b[?7l\x1b[2J");
  }
  ~OtherScreen() {
    try {
      base::write_all(STDOUT_FILENO, "\x1b[?7h\x1b[?25h\x1b[?1049l");
    } catch (const Error&) {
      // The terminal is gone: nothing to restore.
    }
  }
  OtherScreen(OtherScreen&&) = delete;

 private:
  RawMode raw_;
};

class BlockedSignals {
 public:
  BlockedSignals() {
    ::sigemptyset(&ours_);
    for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGWINCH})
      ::sigaddset(&ours_, signal);
    ::pthread_sigmask(SIG_BLOCK, &ours_, &before_);
    fd_.reset(base::check(::signalfd(-1, &ours_, SFD_CLOEXEC | SFD_NONBLOCK), "create a signalfd"));
  }
  ~BlockedSignals() { ::pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  BlockedSignals(BlockedSignals&&) = delete;
  int fd() const { return fd_.get(); }
  // The signal that ends us; 0: none.
  int ending() {
    signalfd_siginfo info{};
    while (::read(fd_.get(), &info, sizeof info) == static_cast<ssize_t>(sizeof info)) {
      if (info.ssi_signo != SIGWINCH) return static_cast<int>(info.ssi_signo);
    }
    return 0;
  }

 private:
  sigset_t ours_{};
  sigset_t before_{};
  Fd fd_;
};

std::string clock_text() {
  const time_t now = ::time(nullptr);
  tm parts{};
  ::localtime_r(&now, &parts);
  std::array<char, 16> text{};
  return {text.data(), ::strftime(text.data(), text.size(), "%H:%M:%S", &parts)};
}

class LiveView {
 public:
  LiveView(Context& context, const TopOptions& options)
      : context_(context),
        poller_(context.socket, options.own,
                milliseconds(parse_duration_ms(options.pause, "--delay"))),
        screen_(std::in_place) {
    view_.colours = context.terminal.colours;
    view_.order = order_of(options.order);
    view_.own = options.own;
  }

  int run() {
    for (;;) {
      std::array<pollfd, 3> polled{
          {{STDIN_FILENO, POLLIN, 0}, {signals_.fd(), POLLIN, 0}, {poller_.news_fd(), POLLIN, 0}}};
      ::poll(polled.data(), polled.size(), -1);
      if (const int signal = signals_.ending()) return 128 + signal;
      if (polled[0].revents != 0 && !read_keys()) return 0;
      draw();
    }
  }

 private:
  void draw() {
    const Poller::Seen seen = poller_.seen();
    if (!seen.now.is_object() && seen.trouble.empty()) return;
    rows_ = top_rows(seen.now, seen.before, view_.order);
    view_.size = window_size(STDOUT_FILENO);
    view_.clock = clock_text();
    view_.trouble = seen.trouble;
    base::write_all(STDOUT_FILENO, top_frame(seen.now, rows_, view_));
  }

  // False: quit.
  bool read_keys() {
    std::array<char, 64> bytes{};
    const ssize_t count = ::read(STDIN_FILENO, bytes.data(), bytes.size());
    if (count <= 0) return false;
    std::string_view keys(bytes.data(), static_cast<size_t>(count));
    while (!keys.empty()) {
      const bool sequence =
          keys.size() >= 3 && keys[0] == '\x1b' && (keys[1] == '[' || keys[1] == 'O');
      if (sequence && keys[2] == 'A') select(-1);
      if (sequence && keys[2] == 'B') select(1);
      if (!sequence && !press(keys[0])) return false;
      keys.remove_prefix(sequence ? 3 : 1);
    }
    return true;
  }

  bool press(char key) {
    constexpr std::string_view kOrders = "cmdn";
    if (key == 'q' || key == '\x03') return false;
    if (const size_t order = kOrders.find(key); order != std::string_view::npos)
      view_.order = static_cast<TopOrder>(order);
    if (key == 'k') select(-1);
    if (key == 'j') select(1);
    if (key == 'o') poller_.set_own(view_.own = !view_.own);
    if (key == '\x1a') pause();
    return true;
  }

  void select(int step) {
    if (rows_.empty()) return;
    const auto chosen = std::find_if(rows_.begin(), rows_.end(),
                                     [&](const TopRow& row) { return row.id == view_.selected; });
    const auto last = static_cast<int64_t>(rows_.size()) - 1;
    const int64_t at =
        chosen == rows_.end() ? (step > 0 ? 0 : last) : chosen - rows_.begin() + step;
    view_.selected = rows_.at(static_cast<size_t>(std::clamp<int64_t>(at, 0, last))).id;
  }

  // Ctrl-Z: restore the shell's screen, and ours after it continues us.
  void pause() {
    screen_.reset();
    ::raise(SIGTSTP);
    screen_.emplace();
  }

  Context& context_;
  BlockedSignals signals_;  // before the thread, which inherits them
  Poller poller_;
  std::optional<OtherScreen> screen_;
  TopScreen view_;
  std::vector<TopRow> rows_;
};

void print_once(Context& context, const TopOptions& options) {
  const std::string target = target_of(options.own);
  if (context.json) return context.print_json(context.api().get(target));
  const TopOrder order = order_of(options.order);
  const Json before = Json::parse(context.api().get(target));
  std::this_thread::sleep_for(kFirstPause);
  const Json now = Json::parse(context.api().get(target));
  const auto rows = top_rows(now, before, order);
  context.print_table(top_table(rows, !context.terminal.out || context.terminal.columns >= 120));
  context.print(top_counts(rows) + "\n");
}

int top(Context& context, const TopOptions& options) {
  if (context.terminal.in && context.terminal.out && !context.json && !options.once) {
    context.api().get(target_of(options.own));  // report errors on the normal screen
    return LiveView(context, options).run();
  }
  print_once(context, options);
  return 0;
}

}  // namespace

Action top_command(Options& options) { return run_with<TopOptions>(options, top); }

}  // namespace moorage::cli
