#include "link/keeper.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <map>
#include <memory>
#include <optional>
#include <utility>

#include "base/error.h"
#include "base/os/event_loop.h"
#include "base/os/files.h"
#include "base/wire/bootstrap.h"
#include "base/wire/link_config.h"
#include "link/inside_sockets.h"
#include "link/keeper_line.h"

namespace moorage::link {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kFirstPause{100};
constexpr milliseconds kLongestPause{30'000};
constexpr size_t kMaxJournals = 4096;
constexpr const char* kProgram = "/proc/self/exe";

void complain(const std::string& text) {
  const std::string line = "moorage-link: " + text + "\n";
  [[maybe_unused]] const ssize_t ignored = ::write(STDERR_FILENO, line.data(), line.size());
}

class Keeper {
 public:
  explicit Keeper(const KeeperOptions& options) : config_(options.config), restart_(loop_) {
    begin_network();
    base::Bootstrapped sockets = base::bootstrap(options.bootstrap);
    listener_ = std::move(sockets.listener);
    if (sockets.network_line) take_network_line(std::move(sockets.network_line));
    watch_signals();
    start_worker();
  }

  void run() { loop_.run(); }
  ~Keeper() { kill_worker(); }
  Keeper(Keeper&&) = delete;

 private:
  struct Kept {
    base::Fd fd;
    uint64_t room_bytes = 0;
  };

  void begin_network();
  void take_network_line(base::Fd line);
  void watch_signals();
  void start_worker();
  void hand_over();
  bool hear();
  void reap();
  void worker_ended(int status);
  void kill_worker();
  void send_key(int pipe);

  base::Loop loop_;
  const std::string config_;
  base::Fd listener_;
  StandIn network_;  // empty: none could be made
  base::Fd network_line_;
  std::map<std::string, Kept> journals_;
  base::Fd signals_;
  std::optional<base::Watch> signals_watch_;
  pid_t worker_ = -1;
  bool steady_ = false;  // this worker reached the machine: the next one may start at once
  milliseconds pause_ = kFirstPause;
  base::Fd line_;
  std::optional<base::Watch> line_watch_;
  base::Timer restart_;
};

// A sandbox without a network is of use, too; the daemon sees that the line ends.
void Keeper::begin_network() {
  try {
    network_ = make_stand_in();
  } catch (const Error& error) {
    complain("no network for the sandbox: " + error.message());
  }
}

void Keeper::take_network_line(base::Fd line) {
  network_line_.reset();
  if (!network_.name_space) return;
  try {
    send_resolver(line.get(), network_);
    network_line_ = std::move(line);
  } catch (const Error&) {
    // Its other side has left already.
  }
}

void Keeper::watch_signals() {
  sigset_t set;
  sigemptyset(&set);
  for (int signal : {SIGCHLD, SIGTERM}) sigaddset(&set, signal);
  base::check(sigprocmask(SIG_BLOCK, &set, nullptr), "block signals");
  signals_ = base::Fd(base::check(signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK), "await signals"));
  signals_watch_.emplace(loop_, signals_.get(), EPOLLIN, [this](uint32_t) {
    signalfd_siginfo signal;
    while (::read(signals_.get(), &signal, sizeof signal) == sizeof signal) {
      if (signal.ssi_signo == SIGTERM) loop_.stop();
    }
    reap();
  });
}

void Keeper::start_worker() {
  std::array<int, 2> ends{};
  base::check(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends.data()),
              "create a socket");
  line_.reset(ends[0]);
  const base::Fd theirs(ends[1]);
  std::string number = std::to_string(theirs.get());
  worker_ = base::check(fork(), "create a process");
  if (worker_ == 0) {
    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, nullptr);
    fcntl(theirs.get(), F_SETFD, 0);
    execl(kProgram, "moorage-link", "worker", "--config", config_.c_str(), "--line", number.c_str(),
          nullptr);
    _exit(127);
  }
  setpgid(worker_, worker_);  // by both, so that it is done whoever runs first
  steady_ = false;
  line_watch_.emplace(loop_, line_.get(), EPOLLIN, [this](uint32_t) { hear(); });
  try {
    hand_over();
  } catch (const Error&) {
    // It has ended already; reap() starts the next one.
  }
}

void Keeper::hand_over() {
  send_line(line_.get(), {.kind = LineMessage::Kind::listener, .fd = listener_.duplicate()});
  for (const auto& [tag, kept] : journals_) {
    send_line(line_.get(), {.kind = LineMessage::Kind::keep,
                            .text = tag,
                            .room_bytes = kept.room_bytes,
                            .fd = kept.fd.duplicate()});
  }
  if (network_.name_space) {
    send_line(line_.get(),
              {.kind = LineMessage::Kind::name_space, .fd = network_.name_space.duplicate()});
  }
  if (network_line_) {
    send_line(line_.get(),
              {.kind = LineMessage::Kind::network_line, .fd = network_line_.duplicate()});
  }
  send_line(line_.get(), {});
}

// False: it sends no more.
bool Keeper::hear() {
  std::optional<LineMessage> message;
  try {
    message = receive_line(line_.get());
  } catch (const Error&) {
    kill_worker();  // a new one starts from the journals
  }
  if (!message) {
    line_watch_->set_events(0);
    return false;
  }
  if (message->kind == LineMessage::Kind::connected) steady_ = true;
  if (message->kind == LineMessage::Kind::drop) journals_.erase(message->text);
  if (message->kind == LineMessage::Kind::key && message->fd) send_key(message->fd.get());
  if (message->kind == LineMessage::Kind::keep && message->fd) {
    if (journals_.size() >= kMaxJournals) kill_worker();
    journals_[message->text] = {std::move(message->fd), message->room_bytes};
  }
  if (message->kind == LineMessage::Kind::network_line && message->fd)
    take_network_line(std::move(message->fd));
  return true;
}

void Keeper::reap() {
  for (;;) {
    siginfo_t info{};
    if (waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) != 0 || info.si_pid == 0) return;
    // Its children, ssh and the process that makes packs, while its number cannot be reused.
    if (info.si_pid == worker_) kill_worker();
    int status = 0;
    waitpid(info.si_pid, &status, 0);
    if (info.si_pid == worker_) worker_ended(status);
  }
}

void Keeper::worker_ended(int status) {
  worker_ = -1;
  while (base::wait_readable(line_.get(), 0) && hear()) {
  }
  line_watch_.reset();
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return loop_.stop();
  restart_.start(steady_ ? milliseconds(0) : pause_, [this] { start_worker(); });
  pause_ = steady_ ? kFirstPause : std::min(pause_ * 2, kLongestPause);
}

// By a process of its own: a key may come from a command, which takes its time.
void Keeper::send_key(int pipe) {
  const pid_t reader = fork();
  if (reader != 0) return;  // reap() takes it; without one the pipe ends without a key
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  if (dup2(pipe, STDOUT_FILENO) >= 0)
    execl(kProgram, "moorage-link", "key", "--config", config_.c_str(), nullptr);
  _exit(127);
}

void Keeper::kill_worker() {
  if (worker_ > 0) kill(-worker_, SIGKILL);
}

}  // namespace

void run_keeper(const KeeperOptions& options) {
  prctl(PR_SET_DUMPABLE, 0);
  signal(SIGPIPE, SIG_IGN);
  Keeper keeper(options);
  keeper.run();
}

}  // namespace moorage::link
