#include "cli/stream/signal_forwarder.h"

#include <poll.h>
#include <pthread.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <algorithm>

#include "base/clock.h"
#include "base/error.h"
#include "cli/client/api.h"
#include "cli/client/json.h"
#include "cli/output/terminal.h"

namespace moorage::cli {
namespace {

constexpr int64_t kSecondInterruptMs = 1000;
constexpr int kPatienceMs = 10'000;

std::string resize_body(int fd) {
  const WindowSize size = window_size(fd);
  return JsonObject().add("columns", int64_t{size.columns}).add("rows", int64_t{size.rows}).str();
}

}  // namespace

bool is_ignored(int signal) {
  struct sigaction current {};
  return ::sigaction(signal, nullptr, &current) == 0 && current.sa_handler == SIG_IGN;
}

SignalForwarder::SignalForwarder(ForwardPlan plan)
    : plan_(std::move(plan)), connection_(plan_.socket_path) {
  ::sigemptyset(&blocked_);
  for (const auto* some : {&plan_.signals, &plan_.leaving}) {
    for (const int signal : *some) {
      if (!is_ignored(signal)) ::sigaddset(&blocked_, signal);
    }
  }
  if (plan_.window_fd >= 0) ::sigaddset(&blocked_, SIGWINCH);
  ::pthread_sigmask(SIG_BLOCK, &blocked_, &before_);
  signals_.reset(base::check(::signalfd(-1, &blocked_, SFD_CLOEXEC | SFD_NONBLOCK), "get signals"));
  wake_.reset(base::check(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK), "create an eventfd"));
  thread_ = std::thread([this] { run(); });
}

SignalForwarder::~SignalForwarder() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  connection_.cancel();
  wake();
  thread_.join();
  ::pthread_sigmask(SIG_SETMASK, &before_, nullptr);
}

void SignalForwarder::wake() { ::eventfd_write(wake_.get(), 1); }

void SignalForwarder::set_exec(const std::string& exec) {
  const std::lock_guard lock(mutex_);
  exec_ = exec;
  wake();
}

void SignalForwarder::run() {
  for (;;) {
    pollfd polled[2] = {{signals_.get(), POLLIN, 0}, {wake_.get(), POLLIN, 0}};
    ::poll(polled, 2, -1);
    eventfd_t ignored = 0;
    ::eventfd_read(wake_.get(), &ignored);
    signalfd_siginfo info{};
    while (::read(signals_.get(), &info, sizeof info) == static_cast<ssize_t>(sizeof info)) {
      handle(static_cast<int>(info.ssi_signo));
    }
    take_posts();
    const std::lock_guard lock(mutex_);
    if (stopping_) return;
  }
}

void SignalForwarder::handle(int signal) {
  if (std::find(plan_.leaving.begin(), plan_.leaving.end(), signal) != plan_.leaving.end())
    return plan_.on_leave(signal);
  const std::lock_guard lock(mutex_);
  if (signal == SIGWINCH) {
    posts_.push_back({"/resize", resize_body(plan_.window_fd)});
    return;
  }
  const int64_t now_ms = base::system_clock().boot_ms();
  const bool second = signal == SIGINT && last_interrupt_ms_ >= 0 &&
                      now_ms - last_interrupt_ms_ <= kSecondInterruptMs;
  if (signal == SIGINT) last_interrupt_ms_ = now_ms;
  if (second && exec_.empty()) return plan_.on_nobody();
  if (second) {
    posts_.push_back({"/cancel", ""});
  } else {
    const int sent = signal == SIGTERM ? plan_.for_term : signal;
    posts_.push_back({"/signal", JsonObject().add("signal", ::sigabbrev_np(sent)).str()});
  }
}

void SignalForwarder::take_posts() {
  for (;;) {
    Post next;
    {
      const std::lock_guard lock(mutex_);
      if (posts_.empty() || exec_.empty() || stopping_) return;
      next = posts_.front();
      posts_.erase(posts_.begin());
    }
    post(next.rest, next.body);
  }
}

void SignalForwarder::post(const std::string& rest, const std::string& body) {
  HttpRequest request;
  request.method = "POST";
  request.target = "/v1/execs/" + percent_encode(exec_) + rest;
  request.headers = {{"Idempotency-Key", new_idempotency_key()}};
  if (!body.empty()) request.headers.emplace_back("Content-Type", "application/json");
  request.body = body;
  // Retry once: the daemon may have closed the kept connection long ago.
  for (int attempt = 0; attempt < 2; ++attempt) {
    try {
      connection_.exchange(request, {.silence_timeout_ms = kPatienceMs});
      return;  // a refusal means that it has ended, which the output stream reports
    } catch (const Error& error) {
      if (error.code() == Code::unavailable || attempt == 1) break;
    }
  }
  {
    const std::lock_guard lock(mutex_);
    if (stopping_) return;
  }
  if (rest != "/resize") plan_.on_nobody();
}

}  // namespace moorage::cli
