// moorage-warden: process 1 of a sandbox. Reaps, runs commands, pumps their output; see
// process_service.h for its requests and exec.h for commands. Static, one thread, no name service.
//
//   moorage-warden --bootstrap PATH [--subreaper]    the listener comes over the socket PATH
//   moorage-warden --listen-fd N [--subreaper]       the listener is descriptor N
//
// --user-base N: users have the ids of spawn.h plus N, where no user namespace maps them. The
// warden is then either the host's root, or such a user itself, without any capability, and runs
// commands only as itself.
// --spool DIR: where a command may have its journal without a descriptor (backends/envd_client.h).
// Opened once at the start, so DIR may be a path that is gone afterwards, /proc/self/fd/N.
// --subreaper: not process 1; orphans of the commands still come here.
// --most-left N: a command without a control group that leaves more than N processes behind has
// left a fork bomb: all of them are killed.
//
// SIGTERM ends everything: a host shutting down sends it to every process, and systemd waits 90
// seconds for one that stays. Process 1 receives it only from outside the sandbox.
#include <fcntl.h>
#include <malloc.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <exception>
#include <memory>
#include <string>

#include "base/error.h"
#include "base/wire/bootstrap.h"
#include "warden/io/loop.h"
#include "warden/io/server.h"
#include "warden/network.h"
#include "warden/process_service.h"
#include "warden/reaper.h"
#include "warden/shutdown.h"

namespace moorage::warden {
namespace {

constexpr auto kGraceAtSigterm = std::chrono::milliseconds(2000);

void complain(std::string_view what) {
  const std::string text = "moorage-warden: " + std::string(what) + "\n";
  [[maybe_unused]] ssize_t ignored = ::write(STDERR_FILENO, text.data(), text.size());
}
constexpr rlim_t kOpenFiles = 65536;
// Soft limit for commands: programs that use select(2) or close every descriptor rely on it; others
// raise it themselves.
constexpr rlim_t kOpenFilesOfCommand = 1024;

struct Options {
  std::string bootstrap;
  int listen_fd = -1;
  std::string spool;
  bool subreaper = false;
  uint32_t user_base = 0;
  size_t most_left = 0;
};

Options read_options(int argc, char** argv) {
  Options options;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    const bool has_value = i + 1 < argc;
    if (word == "--subreaper") {
      options.subreaper = true;
    } else if (word == "--bootstrap" && has_value) {
      options.bootstrap = argv[++i];
    } else if (word == "--listen-fd" && has_value) {
      options.listen_fd = std::atoi(argv[++i]);
    } else if (word == "--spool" && has_value) {
      options.spool = argv[++i];
    } else if (word == "--user-base" && has_value) {
      options.user_base = static_cast<uint32_t>(std::strtoul(argv[++i], nullptr, 10));
    } else if (word == "--most-left" && has_value) {
      options.most_left = std::strtoul(argv[++i], nullptr, 10);
    } else {
      throw Error(Code::invalid_argument, "unknown option " + word);
    }
  }
  if (options.bootstrap.empty() == (options.listen_fd < 0)) {
    throw Error(Code::invalid_argument, "give either --bootstrap PATH or --listen-fd N");
  }
  return options;
}

// Keeps memory small and steady: large buffers return to the kernel once they are free.
void tame_memory() {
  ::mallopt(M_ARENA_MAX, 1);
  ::mallopt(M_MMAP_THRESHOLD, 64 << 10);
  ::mallopt(M_TRIM_THRESHOLD, 64 << 10);
  ::mallopt(M_TOP_PAD, 16 << 10);
}

// Raises the limit for the warden itself; returns the commands' limit.
rlimit raise_open_files() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) base::throw_errno("read a process limit");
  rlimit ours = limit;
  ours.rlim_cur = std::min<rlim_t>(std::max(limit.rlim_cur, kOpenFiles), limit.rlim_max);
  ::setrlimit(RLIMIT_NOFILE, &ours);
  limit.rlim_cur = std::min(limit.rlim_max, kOpenFilesOfCommand);
  return limit;
}

void set_up_signals(bool subreaper) {
  ::prctl(PR_SET_DUMPABLE, 0);
  // LXC ties process 1 to its monitor; the sandbox must outlive it.
  ::prctl(PR_SET_PDEATHSIG, 0);
  if (subreaper && ::prctl(PR_SET_CHILD_SUBREAPER, 1) != 0) base::throw_errno("become subreaper");
  for (int signal : {SIGPIPE, SIGXFSZ, SIGHUP, SIGINT, SIGUSR1, SIGUSR2, SIGALRM, SIGPWR}) {
    ::signal(signal, SIG_IGN);
  }
}

Fd open_spool(const std::string& path) {
  if (path.empty()) return {};
  return Fd(
      base::check(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC), "open the spool"));
}

// A sender outside our namespace has pid 0, and only kill(2) gives SI_USER. So does a signal whose
// details the kernel had no room for: root inside can provoke that, and ends its own sandbox.
bool from_outside(const signalfd_siginfo& signal) {
  return signal.ssi_code == SI_USER && signal.ssi_pid == 0;
}

// A sandbox without a network is of use, too; the daemon sees that the line ended.
void begin_network(Network& network, Fd line) {
  try {
    network.set_line(std::move(line));
  } catch (const Error& error) {
    complain(error.what());
  }
}

// POST /moorage/network with the line as its one descriptor.
void take_line(Network& network, Connection& connection, HttpRequest& request) {
  try {
    if (request.method != "POST" || request.fds.size() != 1)
      throw Error(Code::invalid_argument, "POST it with one descriptor");
    network.set_line(std::move(request.fds[0]));
    connection.respond(200, "application/json", "{}");
  } catch (const Error& error) {
    connection.respond(400, "text/plain", error.message());
  }
}

void run(const Options& options) {
  tame_memory();
  // Close descriptors that a launcher left open.
  if (options.listen_fd < 0) ::close_range(STDERR_FILENO + 1, ~0U, 0);
  base::fill_standard_fds();  // spawn.cc relies on ours being above
  Fd null(base::check(::open("/dev/null", O_RDWR | O_CLOEXEC), "open /dev/null"));
  set_up_signals(options.subreaper);
  SpawnContext context{null.get(), raise_open_files(), options.user_base, options.most_left};
  base::Bootstrapped sockets = options.bootstrap.empty()
                                   ? base::Bootstrapped{Fd(options.listen_fd), {}}
                                   : base::bootstrap(options.bootstrap);
  base::check_listener(sockets.listener);
  const Fd spool = open_spool(options.spool);
  if (::fcntl(sockets.listener.get(), F_SETFD, FD_CLOEXEC) != 0)
    base::throw_errno("set up a socket");

  Loop loop;
  Network network(loop);
  if (sockets.network_line) begin_network(network, std::move(sockets.network_line));
  std::unique_ptr<Shutdown> shutdown;
  ProcessService service(loop, context, spool.get(),
                         [&](auto grace, const auto& asked) { shutdown->begin(grace, asked); });
  Reaper reaper(loop, [&](pid_t pid, int status, const rusage& usage) {
    service.process_ended(pid, status, usage);
  });
  shutdown = std::make_unique<Shutdown>(loop, Shutdown::Checks{[&] { return reaper.childless(); },
                                                               [&] { return service.recorded(); }});
  Fd terminations = signal_fd(SIGTERM);
  Watch termination_watch(loop, terminations.get(), EPOLLIN, [&](uint32_t) {
    signalfd_siginfo signal;
    if (::read(terminations.get(), &signal, sizeof signal) <= 0) return;
    if (options.subreaper || from_outside(signal)) shutdown->begin(kGraceAtSigterm, nullptr);
  });
  Server server(loop, std::move(sockets.listener),
                [&](const auto& connection, HttpRequest&& request) {
                  if (request.target == "/moorage/network")
                    return take_line(network, *connection, request);
                  service.handle(connection, std::move(request));
                });
  loop.run();
}

}  // namespace
}  // namespace moorage::warden

int main(int argc, char** argv) {
  try {
    moorage::warden::run(moorage::warden::read_options(argc, argv));
    // The kernel does all other clean-up, and a journal may still be held open.
    ::_exit(0);
  } catch (const std::exception& error) {
    moorage::warden::complain(error.what());
  }
  ::_exit(1);
}
