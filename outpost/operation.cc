#include "outpost/operation.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

namespace moorage::outpost {
namespace {

constexpr size_t kMaxAnswerBytes = 8 << 20;
// A result: this mark and the answer, or a code, NUL and a message.
constexpr char kAnswer = 'a';
constexpr char kError = 'e';

// Killed children that are not reaped yet: one that hangs in the kernel is not waited for.
std::vector<pid_t>& unreaped() {
  static std::vector<pid_t> pids;
  return pids;
}

void end(pid_t pid) {
  kill(pid, SIGKILL);
  unreaped().push_back(pid);
  reap_operations();
}

[[noreturn]] void run_child(const Operation::Work& work, pid_t parent, int result) {
  std::string text;
  try {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) _exit(1);  // it died before the line above
    text = kAnswer + work();
  } catch (const Error& error) {
    text = kError + std::string(base::code_name(error.code())) + '\0' + error.message();
  } catch (const std::exception& error) {
    text = kError + std::string("internal") + '\0' + error.what();
  }
  try {
    base::write_all(result, text);
  } catch (const Error&) {
    _exit(1);
  }
  _exit(0);
}

Error error_in(std::string_view text) {
  if (text.empty()) return Error(Code::internal, "an operation was killed on this machine");
  text.remove_prefix(1);
  const size_t end = text.find('\0');
  if (end == std::string_view::npos) return Error(Code::internal, "an operation failed");
  return Error(base::code_from_name(text.substr(0, end)), std::string(text.substr(end + 1)));
}

}  // namespace

void reap_operations() {
  std::erase_if(unreaped(), [](pid_t pid) { return waitpid(pid, nullptr, WNOHANG) != 0; });
}

void close_all_but(std::vector<int> keep) {
  std::sort(keep.begin(), keep.end());
  unsigned first = STDERR_FILENO + 1;
  const auto close_up_to = [&](unsigned last) {
    if (first > last) return;
    // Kernels before 5.9 lack the call; then one by one.
    if (syscall(SYS_close_range, first, last, 0) == 0) return;
    const auto limit = static_cast<unsigned>(std::max(sysconf(_SC_OPEN_MAX), 1024L));
    for (unsigned fd = first; fd <= std::min(last, limit); ++fd) close(static_cast<int>(fd));
  };
  for (int fd : keep) {
    if (fd < static_cast<int>(first)) continue;
    close_up_to(static_cast<unsigned>(fd) - 1);
    first = static_cast<unsigned>(fd) + 1;
  }
  close_up_to(~0U);
}

std::string run_apart(const Operation::Work& work) {
  base::Pipe pipe = base::make_pipe();
  const pid_t parent = getpid();
  const pid_t pid = fork();
  if (pid < 0) base::throw_no_task("start an operation", errno);
  if (pid == 0) run_child(work, parent, pipe.write_end.get());
  pipe.write_end.reset();
  const std::string result = base::read_up_to(pipe.read_end.get(), kMaxAnswerBytes);
  while (waitpid(pid, nullptr, 0) < 0 && errno == EINTR) {
  }
  if (!result.starts_with(kAnswer)) throw error_in(result);
  return result.substr(1);
}

Operation::Operation(base::Loop& loop, const Work& work, const Options& options, Done done)
    : loop_(loop), done_(std::move(done)), deadline_(loop) {
  base::Pipe pipe = base::make_pipe();
  const pid_t parent = getpid();
  pid_ = fork();
  if (pid_ < 0) base::throw_no_task("start an operation", errno);
  if (pid_ == 0) {
    std::vector<int> keep = options.keep_fds;
    keep.push_back(pipe.write_end.get());
    close_all_but(std::move(keep));
    run_child(work, parent, pipe.write_end.get());
  }
  result_ = std::move(pipe.read_end);
  base::check(fcntl(result_.get(), F_SETFL, O_NONBLOCK), "set up a pipe");
  watch_ = std::make_unique<base::Watch>(loop_, result_.get(), EPOLLIN,
                                         [this](uint32_t) { on_readable(); });
  deadline_.start(options.deadline, [this] {
    finish(Error(Code::deadline_exceeded, "the operation took too long on this machine"));
  });
}

Operation::~Operation() {
  if (pid_ > 0) end(pid_);
}

void Operation::on_readable() {
  char piece[4096];
  const ssize_t count = read(result_.get(), piece, sizeof piece);
  if (count < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (count > 0) received_.append(piece, static_cast<size_t>(count));
  if (received_.size() > kMaxAnswerBytes)
    return finish(Error(Code::resource_exhausted, "the answer of an operation is too large"));
  if (count > 0) return;
  const bool answered = received_.starts_with(kAnswer);
  finish(answered ? std::nullopt : std::optional(error_in(received_)));
}

void Operation::finish(std::optional<Error> error) {
  deadline_.stop();
  watch_.reset();
  end(std::exchange(pid_, -1));
  const Done done = std::move(done_);
  done({received_.empty() ? std::string() : received_.substr(1), std::move(error)});
}

}  // namespace moorage::outpost
