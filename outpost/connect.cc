#include "outpost/connect.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <thread>

#include "base/error.h"
#include "base/os/files.h"
#include "outpost/directory.h"
#include "outpost/operation.h"
#include "outpost/programs.h"

namespace moorage::outpost {
namespace {

using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

constexpr auto kPatience = milliseconds(10'000);
constexpr auto kPause = milliseconds(10);
constexpr off_t kMaxLogBytes = 1 << 20;

// In the grandchild: with a session of its own, no terminal, and `/` as its directory.
[[noreturn]] void become_serve(const ConnectOptions& options, const std::string& sandbox,
                               const Fd& listener, const Fd& lock) {
  if (setsid() < 0) _exit(1);
  const pid_t pid = fork();
  if (pid != 0) _exit(pid < 0 ? 1 : 0);
  struct stat status {};
  const std::string log = sandbox + "/serve.log";
  const int flags = stat(log.c_str(), &status) == 0 && status.st_size > kMaxLogBytes ? O_TRUNC : 0;
  const int null = open("/dev/null", O_RDWR);
  const int errors = open(log.c_str(), O_WRONLY | O_APPEND | O_CREAT | flags, 0600);
  dup2(null, 0);
  dup2(null, 1);
  dup2(errors < 0 ? null : errors, 2);
  close_all_but({listener.get(), lock.get()});
  for (const Fd* kept : {&listener, &lock}) fcntl(kept->get(), F_SETFD, 0);
  if (chdir("/") != 0) _exit(1);
  const std::string program = own_path();
  const std::string fd = std::to_string(listener.get());
  const std::string generation = std::to_string(options.generation);
  const char* argv[] = {"moorage-outpost",
                        "serve",
                        "--dir",
                        options.directory.c_str(),
                        "--name",
                        options.name.c_str(),
                        "--generation",
                        generation.c_str(),
                        "--listen-fd",
                        fd.c_str(),
                        nullptr};
  const char* environment[] = {"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
                               nullptr};
  execve(program.c_str(), const_cast<char**>(argv), const_cast<char**>(environment));
  _exit(127);
}

void start_serve(const ConnectOptions& options, const std::string& sandbox, const Fd& lock) {
  const Fd listener = base::listen_unix(sandbox + "/outpost.sock", 0600);
  const pid_t pid = fork();
  if (pid < 0) base::throw_no_task("start serve", errno);
  if (pid == 0) become_serve(options, sandbox, listener, lock);
}

Fd connected(const ConnectOptions& options, const std::string& sandbox) {
  const auto end = Clock::now() + kPatience;
  for (;;) {
    make_private_directory(sandbox);
    if (const Fd lock = lock_serve(sandbox)) start_serve(options, sandbox, lock);
    try {
      // The one that has the lock may not listen yet, or be about to end.
      if (read_pid(sandbox + "/serve.pid"))
        return base::connect_unix(sandbox + "/outpost.sock", 1000);
    } catch (const Error& error) {
      if (error.code() != Code::not_found && error.code() != Code::unavailable) throw;
    }
    if (Clock::now() > end)
      throw Error(Code::unavailable, "the process that serves " + sandbox + " does not start",
                  "see " + sandbox + "/serve.log");
    std::this_thread::sleep_for(kPause);
  }
}

// Until the source ends or the target takes no more.
void copy(int from, int to) {
  std::array<char, 64 << 10> piece;
  for (;;) {
    const ssize_t count = read(from, piece.data(), piece.size());
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return;
    for (ssize_t done = 0; done < count;) {
      const ssize_t written = write(to, piece.data() + done, static_cast<size_t>(count - done));
      if (written < 0 && errno == EINTR) continue;
      if (written <= 0) return;
      done += written;
    }
  }
}

}  // namespace

// Its file goes with the sandbox, so the lock counts only while the name is that of the same file.
Fd lock_serve(const std::string& sandbox) {
  const std::string path = sandbox + "/serve.lock";
  Fd file = base::open_file(path, O_RDWR | O_CREAT, 0600);
  if (flock(file.get(), LOCK_EX | LOCK_NB) != 0) return {};
  struct stat locked {};
  struct stat named {};
  base::check(fstat(file.get(), &locked), "inspect a lock");
  if (stat(path.c_str(), &named) != 0 || named.st_ino != locked.st_ino) return {};
  return file;
}

void connect_to_serve(const ConnectOptions& options) {
  signal(SIGPIPE, SIG_IGN);
  const Directory directory(options.directory);
  const Fd socket = connected(options, directory.sandbox(options.name));
  std::thread input([&socket] {
    copy(STDIN_FILENO, socket.get());
    shutdown(socket.get(), SHUT_WR);
  });
  copy(socket.get(), STDOUT_FILENO);
  // The other thread may wait for input that never comes.
  _exit(0);
}

}  // namespace moorage::outpost
