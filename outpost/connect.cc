#include "outpost/connect.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <span>
#include <string_view>
#include <thread>

#include "base/error.h"
#include "base/os/files.h"
#include "base/wire/text_stream.h"
#include "outpost/directory.h"
#include "outpost/operation.h"
#include "outpost/programs.h"

namespace moorage::outpost {
namespace {

using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

constexpr int kMissingProgram = 127;  // as a shell says it
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
  const int null = open("/dev/null", O_RDWR | O_CLOEXEC);
  const int errors = open(log.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | flags, 0600);
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

std::string_view read_piece(int from, std::span<char> room) {
  ssize_t count = 0;
  do {
    count = read(from, room.data(), room.size());
  } while (count < 0 && errno == EINTR);
  return {room.data(), static_cast<size_t>(std::max<ssize_t>(count, 0))};
}

// Each of these runs until its source ends, or its target takes no more.
void carry_input(bool text, int to) {
  std::array<char, 64 << 10> room;
  base::TextDecoder decoder(base::TextDirection::to_program);
  while (!decoder.ended()) {
    const std::string_view piece = read_piece(STDIN_FILENO, room);
    if (piece.empty()) break;
    std::string bytes;
    if (text) decoder.decode(piece, bytes);
    base::write_all(to, text ? std::string_view(bytes) : piece);
  }
}

void carry_output(int from, bool text) {
  std::array<char, 64 << 10> room;
  base::TextEncoder encoder(base::TextDirection::from_program);
  for (;;) {
    const std::string_view piece = read_piece(from, room);
    if (piece.empty()) break;
    base::write_all(STDOUT_FILENO, text ? std::string_view(encoder.encode(piece)) : piece);
  }
  if (text) base::write_all(STDOUT_FILENO, encoder.end());
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
  if (!base::path_exists(warden_path())) {
    // A machine that came back in an older state. moorage-link then puts both programs there.
    std::fprintf(stderr, "moorage-outpost: the program %s is missing\n", warden_path().c_str());
    _exit(kMissingProgram);
  }
  const Directory directory(options.directory);
  const Fd socket = connected(options, directory.sandbox(options.name));
  std::thread input([&] {
    try {
      carry_input(options.text, socket.get());
    } catch (const Error&) {
      // Its lines are damaged, or serve has gone: either way nothing more can be carried.
    }
    shutdown(socket.get(), SHUT_WR);
  });
  carry_output(socket.get(), options.text);
  // The other thread may wait for input that never comes.
  _exit(0);
}

}  // namespace moorage::outpost
