#include "link/drivers/ssh_child.h"

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <thread>
#include <utility>

#include "base/error.h"

extern char** environ;

namespace moorage::link {
namespace {

constexpr size_t kMaxErrorBytes = 4096;
constexpr size_t kShownBytes = 400;
constexpr int kConnectionFailed = 255;  // ssh(1): an error of ssh itself
constexpr int kNotExecutable = 126;     // POSIX shells
constexpr int kNotFound = 127;
constexpr auto kEndPatience = std::chrono::milliseconds(300);

std::vector<std::string> ssh_words(const SshTarget& target, const std::string& command) {
  std::vector<std::string> words{"ssh"};
  if (!target.config_file.empty()) words.insert(words.end(), {"-F", target.config_file});
  for (const char* option :
       {"BatchMode=yes", "StrictHostKeyChecking=yes", "ServerAliveInterval=15",
        "ServerAliveCountMax=3", "ConnectTimeout=20", "ClearAllForwardings=yes", "ForwardAgent=no",
        "ForwardX11=no", "PermitLocalCommand=no", "ControlMaster=no", "ControlPath=none",
        "RequestTTY=no", "EscapeChar=none", "LogLevel=ERROR"}) {
    words.insert(words.end(), {"-o", option});
  }
  words.insert(words.end(), {"-T", "--", target.destination, command});
  return words;
}

void check_spawn(int error, const char* what) {
  if (error != 0) base::throw_errno(what, error);
}

// File actions and attributes of posix_spawn.
struct Spawn {
  posix_spawn_file_actions_t actions;
  posix_spawnattr_t attributes;
  Spawn() {
    posix_spawn_file_actions_init(&actions);
    posix_spawnattr_init(&attributes);
  }
  ~Spawn() {
    posix_spawn_file_actions_destroy(&actions);
    posix_spawnattr_destroy(&attributes);
  }
  Spawn(Spawn&&) = delete;
};

pid_t spawn_ssh(std::vector<std::string> words, int stream, int errors) {
  Spawn spawn;
  for (int fd : {STDIN_FILENO, STDOUT_FILENO})
    posix_spawn_file_actions_adddup2(&spawn.actions, stream, fd);
  posix_spawn_file_actions_adddup2(&spawn.actions, errors, STDERR_FILENO);
  sigset_t none;
  sigemptyset(&none);
  sigset_t defaults;
  sigemptyset(&defaults);
  for (int signal : {SIGPIPE, SIGTERM, SIGHUP, SIGINT, SIGCHLD}) sigaddset(&defaults, signal);
  posix_spawnattr_setsigmask(&spawn.attributes, &none);
  posix_spawnattr_setsigdefault(&spawn.attributes, &defaults);
  posix_spawnattr_setflags(&spawn.attributes, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  pid_t pid = -1;
  int error = posix_spawnp(&pid, "ssh", &spawn.actions, &spawn.attributes, argv.data(), environ);
  if (error == ENOENT) {
    throw Error(Code::unsupported, "there is no program ssh on this host",
                "install OpenSSH's client (Debian: openssh-client)");
  }
  check_spawn(error, "start ssh");
  return pid;
}

bool has(std::string_view text, std::string_view words) {
  return text.find(words) != std::string_view::npos;
}

std::string shown(std::string_view words) {
  std::string text;
  if (words.size() > kShownBytes) words.remove_prefix(words.size() - kShownBytes);
  for (char c : words) {
    if (c == '\r') continue;
    if (c == '\n') c = ' ';
    text += c >= ' ' && c < 127 ? c : '?';
  }
  while (!text.empty() && text.back() == ' ') text.pop_back();
  return text;
}

Error connection_error(const SshTarget& target, std::string_view words) {
  const std::string at = target.name + " (ssh " + target.destination + ")";
  const std::string by_hand = "ssh " + target.destination;
  if (has(words, "IDENTIFICATION HAS CHANGED")) {
    return Error(Code::permission_denied, "the host key of " + at + " has changed",
                 "find out why; if it is right, replace the key in known_hosts");
  }
  if (has(words, "Host key verification failed") || has(words, "host key is known")) {
    return Error(Code::permission_denied, "the host key of " + at + " is not known here",
                 "as root, run: " + by_hand + ", compare its fingerprint, and accept it once");
  }
  if (has(words, "Permission denied") || has(words, "Too many authentication failures")) {
    return Error(Code::permission_denied, at + " refuses the login: " + shown(words),
                 "as root, this must work without a question: " + by_hand + " true");
  }
  if (has(words, "Bad owner or permissions") || has(words, "Bad configuration option") ||
      has(words, "terminating,")) {
    return Error(Code::invalid_argument, "ssh refuses its configuration: " + shown(words));
  }
  if (has(words, "Could not resolve hostname")) {
    return Error(Code::unavailable, "cannot reach " + at + ": its name does not resolve",
                 "check the destination in the section `backends`");
  }
  const std::string why = words.empty() ? "the connection was lost" : shown(words);
  return Error(Code::unavailable, "cannot reach " + at + ": " + why);
}

}  // namespace

std::optional<Error> ssh_failure(const SshTarget& target, int exit_code, std::string_view words) {
  if (exit_code == 0) return std::nullopt;
  if (exit_code == kConnectionFailed || exit_code < 0) return connection_error(target, words);
  if (exit_code == kNotFound)
    return Error(Code::not_found, "a program is missing on " + target.name + ": " + shown(words));
  if (exit_code == kNotExecutable) {
    return Error(Code::unsupported, target.name + " runs no programs there: " + shown(words),
                 "set `directory` to a directory that is not mounted with noexec");
  }
  const std::string status = std::to_string(exit_code);
  return Error(Code::unavailable, "a program on " + target.name + " exited with " + status +
                                      (words.empty() ? "" : ": " + shown(words)));
}

SshChild::SshChild(const SshTarget& target, const std::string& command) : target_(target) {
  if (target.destination.empty() || target.destination.front() == '-')
    throw Error(Code::invalid_argument, "invalid ssh destination: '" + target.destination + "'");
  std::array<int, 2> ends{};
  base::check(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()), "create a socket");
  stream_.reset(ends[0]);
  const base::Fd theirs(ends[1]);
  base::Pipe errors = base::make_pipe();
  pid_ = spawn_ssh(ssh_words(target, command), theirs.get(), errors.write_end.get());
  errors_ = std::move(errors.read_end);
  for (int fd : {stream_.get(), errors_.get()})
    base::check(fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK), "set up a descriptor");
}

SshChild::~SshChild() {
  if (status_) return;
  kill(pid_, SIGKILL);
  reap(true);
}

void SshChild::drain_errors() {
  std::array<char, 4096> piece;
  for (int i = 0; i < 32; ++i) {  // a pipe holds 16 of them
    const ssize_t count = ::read(errors_.get(), piece.data(), piece.size());
    if (count <= 0) break;
    text_.append(piece.data(), static_cast<size_t>(count));
    if (text_.size() > kMaxErrorBytes) text_.erase(0, text_.size() - kMaxErrorBytes);
  }
}

bool SshChild::reap(bool block) {
  if (status_) return true;
  int status = 0;
  pid_t ended = 0;
  do {
    ended = waitpid(pid_, &status, block ? 0 : WNOHANG);
  } while (ended < 0 && errno == EINTR);
  if (ended == 0) return false;
  status_ = ended > 0 && WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  return true;
}

int SshChild::wait(Deadline deadline) {
  while (!reap(false) && std::chrono::steady_clock::now() < deadline) {
    drain_errors();
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  drain_errors();
  return status_.value_or(-1);
}

std::optional<Error> SshChild::reason() {
  // Its exit follows the end of its output at once.
  const int code = wait(std::chrono::steady_clock::now() + kEndPatience);
  if (!status_) return Error(Code::unavailable, "the stream to " + target_.name + " ended");
  return ssh_failure(target_, code, text_);
}

}  // namespace moorage::link
