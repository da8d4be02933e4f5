#include "cli/stream/stdin_pump.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "cli/client/api.h"
#include "cli/client/json.h"
#include "cli/views/exec_result.h"

namespace moorage::cli {
namespace {

constexpr size_t kPieceBytes = 1 << 20;
constexpr char kControlP = 0x10, kControlQ = 0x11;
constexpr int kBackgroundPollMs = 200;
constexpr int kFirstPauseMs = 5;
constexpr int kLongestPauseMs = 200;

}  // namespace

StdinPump::StdinPump(StdinPlan plan)
    : plan_(std::move(plan)),
      is_terminal_(::isatty(plan_.fd) == 1),
      connection_(plan_.socket_path),
      stop_(base::check(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK), "create an eventfd")),
      backoff_(reconnect_patience()),
      buffer_(std::make_unique_for_overwrite<char[]>(kPieceBytes)) {
  // Larger reads from a pipe; fails harmlessly for everything else.
  ::fcntl(plan_.fd, F_SETPIPE_SZ, static_cast<int>(kPieceBytes));
  if (plan_.share && SharedInput::suits(plan_.fd)) shared_.emplace(plan_.fd);
  thread_ = std::thread([this] { run(); });
}

StdinPump::~StdinPump() { stop(); }

void StdinPump::stop() {
  if (!thread_.joinable()) return;
  ::eventfd_write(stop_.get(), 1);
  connection_.cancel();
  thread_.join();
}

void StdinPump::settle(std::optional<uint64_t> read) {
  stop();
  if (shared_) shared_->consume(std::min(read.value_or(read_), sent_));
}

void StdinPump::leave() {
  stop();
  if (shared_) shared_->consume(sent_);
}

void StdinPump::run() {
  try {
    shared_ ? forward_shared() : forward();
  } catch (const std::exception&) {
    // Stopped, or the daemon is gone: the output follower reports it.
  }
}

void StdinPump::forward() {
  for (;;) {
    std::optional<std::string> piece = read_piece();
    if (!piece) return;
    const bool at_end = piece->empty();
    if (at_end && is_hung_up()) return plan_.on_hangup();
    if (plan_.on_detach) piece = filter_keys(*piece);
    const bool close = at_end && plan_.close_at_end;
    if ((!piece->empty() || close) && !deliver(*piece, close)) return;
    if (detached_) return plan_.on_detach();
    if (at_end) return;
  }
}

void StdinPump::forward_shared() {
  for (;;) {
    const auto peek = shared_->peek(plan_.offset, buffer_.get(), kPieceBytes);
    if (peek.at_end) {
      deliver({}, plan_.close_at_end);
      return;
    }
    if (peek.bytes == 0 && !wait_for_reading()) return;
    if (peek.bytes > 0 && !deliver({buffer_.get(), peek.bytes}, false)) return;
    shared_->consume(std::min(read_, sent_));
  }
}

// Without copies inside, the next byte wakes us. With some, the pipe is readable all the time, and
// the command may be about to read them.
bool StdinPump::wait_for_reading() {
  const bool idle = shared_->can_wait(plan_.offset);
  pollfd polled[2] = {{stop_.get(), POLLIN, 0}, {idle ? plan_.fd : -1, POLLIN, 0}};
  if (::poll(polled, 2, idle ? -1 : pause_ms_) < 0 && errno != EINTR) return false;
  if (polled[0].revents != 0) return false;
  if (idle) return true;
  const uint64_t before = read_;
  if (!deliver({}, false)) return false;
  pause_ms_ = read_ > before ? kFirstPauseMs : std::min(2 * pause_ms_, kLongestPauseMs);
  return true;
}

bool StdinPump::wait_for_input() {
  for (;;) {
    // Reading the terminal from the background would stop the whole process (SIGTTIN).
    const pid_t foreground = ::tcgetpgrp(plan_.fd);  // -1: not the controlling terminal
    const bool background = foreground >= 0 && foreground != ::getpgrp();
    pollfd polled[2] = {{stop_.get(), POLLIN, 0}, {background ? -1 : plan_.fd, POLLIN, 0}};
    const int ready = ::poll(polled, 2, background ? kBackgroundPollMs : -1);
    if (ready < 0 && errno != EINTR) return false;
    if (polled[0].revents != 0) return false;
    if (polled[1].revents != 0) return true;
  }
}

// A closed terminal reads as end of file forever.
bool StdinPump::is_hung_up() const {
  pollfd polled{plan_.fd, POLLIN, 0};
  return is_terminal_ && ::poll(&polled, 1, 0) == 1 && (polled.revents & POLLHUP) != 0;
}

std::optional<std::string> StdinPump::read_piece() {
  std::string piece;
  while (piece.empty()) {
    if (!wait_for_input()) return std::nullopt;
    size_t used = 0;
    for (;;) {
      const ssize_t got = ::read(plan_.fd, buffer_.get() + used, kPieceBytes - used);
      if (got == 0 && used == 0) return std::string();  // end of file
      if (got < 0 && is_hung_up()) return std::string();
      if (got < 0 && errno != EINTR && errno != EAGAIN) return std::nullopt;
      if (got == 0) break;  // the next call finds and reports it again
      if (got > 0) used += static_cast<size_t>(got);
      // Take more if it is ready, so that a pipe fills whole pieces.
      pollfd more{plan_.fd, POLLIN, 0};
      if (used == kPieceBytes || ::poll(&more, 1, 0) <= 0) break;
    }
    piece.assign(buffer_.get(), used);
  }
  return piece;
}

std::string StdinPump::filter_keys(const std::string& piece) {
  std::string out;
  for (const char key : piece) {
    if (held_key_ && key == kControlQ) {
      detached_ = true;
      return out;
    }
    if (held_key_) out += kControlP;
    held_key_ = key == kControlP;
    if (!held_key_) out += key;
  }
  return out;
}

bool StdinPump::deliver(std::string_view piece, bool close) {
  sent_ = plan_.offset + piece.size();
  if (!piece.empty()) pause_ms_ = kFirstPauseMs;
  for (;;) {
    std::optional<uint64_t> accepted;
    bool answered = true;
    try {
      accepted = put(piece, close);
    } catch (const Error& error) {
      if (!is_lost(error) || !backoff_.wait(stop_.get())) throw;
      answered = false;
      accepted = ask_accepted();
    }
    // More than we sent: another client writes, too, so our offsets are no longer valid.
    const bool ours =
        accepted && *accepted >= plan_.offset && *accepted - plan_.offset <= piece.size();
    if (!ours) return false;
    const uint64_t taken = *accepted - plan_.offset;
    piece.remove_prefix(static_cast<size_t>(taken));
    plan_.offset += taken;
    if (answered || taken > 0) backoff_.reset();
    if (piece.empty() && (answered || !close)) return true;  // repeat a lost end of input
    if (answered && taken == 0 && !backoff_.wait(stop_.get())) return false;
  }
}

std::optional<uint64_t> StdinPump::put(std::string_view piece, bool close) {
  HttpRequest request;
  request.method = "PUT";
  request.target = "/v1/execs/" + percent_encode(plan_.exec) +
                   "/stdin?offset=" + std::to_string(plan_.offset) + (close ? "&close=1" : "");
  request.headers = {{"Content-Type", "application/octet-stream"},
                     {"Idempotency-Key", new_idempotency_key()}};
  request.body = piece;
  // Without a limit on silence: the command may read slowly.
  const HttpResponse response = connection_.exchange(request, {.silence_timeout_ms = -1});
  if (response.ok()) {
    const Json answer = Json::parse(response.body);
    const auto accepted = static_cast<uint64_t>(answer.number("accepted"));
    // A sandbox of an older release does not say what it read; close has nothing to say either.
    if (answer.has("read")) read_ = static_cast<uint64_t>(answer.number("read"));
    if (!answer.has("read") && !close) read_ = accepted;
    return accepted;
  }
  if (response.status == 503) throw Error(Code::unavailable, "the daemon is busy or shutting down");
  return std::nullopt;  // it ended or closed its standard input: not an error
}

std::optional<uint64_t> StdinPump::ask_accepted() {
  for (;;) {
    try {
      const HttpResponse response =
          connection_.exchange({.target = "/v1/execs/" + percent_encode(plan_.exec)});
      if (response.ok()) {
        const Json exec = Json::parse(response.body);
        if (has_ended(exec)) return std::nullopt;
        // A restarted daemon may not have asked the command's warden yet.
        if (exec.has("stdin_accepted")) return static_cast<uint64_t>(exec.number("stdin_accepted"));
      } else if (response.status != 503) {
        return std::nullopt;
      }
    } catch (const Error& error) {
      if (!is_lost(error)) throw;
    }
    if (!backoff_.wait(stop_.get())) return std::nullopt;
  }
}

}  // namespace moorage::cli
