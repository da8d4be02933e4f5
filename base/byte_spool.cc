#include "base/byte_spool.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>

namespace moorage::base {
namespace {

using std::chrono::milliseconds;

// This much may wait even on a full disk.
constexpr uint64_t kAlwaysBytes = 16 << 20;
constexpr uint64_t kGiveBackBytes = 4 << 20;
constexpr milliseconds kPatience{120'000};  // of the writer, in all

}  // namespace

ByteSpool::ByteSpool(Fd file, std::function<bool()> has_room, LeastRate least)
    : file_(std::move(file)), has_room_(std::move(has_room)), least_(least) {}

void ByteSpool::wait_for_room(std::unique_lock<std::mutex>& lock) {
  const auto little = [this] { return left_ || written_bytes_ - read_bytes_ < kAlwaysBytes; };
  if (little()) return;
  lock.unlock();
  const bool room = has_room_();
  lock.lock();
  if (room) return;
  const auto began = std::chrono::steady_clock::now();
  const bool in_time = read_on_.wait_for(lock, kPatience - waited_, little);
  waited_ += std::chrono::duration_cast<milliseconds>(std::chrono::steady_clock::now() - began);
  if (in_time && waited_ < kPatience) return;
  throw Error(Code::resource_exhausted,
              "the client reads too slowly, and the disk of the store has no room for the data "
              "that it has not read yet",
              "free space (see moorage gc --explain), or let the client read faster");
}

void ByteSpool::write(std::string_view bytes) {
  std::unique_lock lock(mutex_);
  wait_for_room(lock);
  if (left_) throw Error(Code::unavailable, "the client closed the connection");
  const uint64_t at = written_bytes_;
  lock.unlock();
  try {
    base::write_at(file_.get(), bytes, at);
  } catch (Error& error) {
    error.add_context("cannot buffer data for the client");
    throw;
  }
  lock.lock();
  written_bytes_ = at + bytes.size();
}

void ByteSpool::finish() {
  const std::lock_guard lock(mutex_);
  done_ = true;
}

void ByteSpool::fail(const Error& reason) {
  const std::lock_guard lock(mutex_);
  error_ = reason;
  done_ = true;
}

// Counts only the time while the reader had bytes to pass on, not its waits for the writer.
void ByteSpool::require_pace() {
  if (!got_) return;
  busy_ += std::chrono::steady_clock::now() - *got_;
  got_.reset();
  const double busy_s = std::chrono::duration<double>(busy_).count();
  if (busy_ <= least_.grace || static_cast<double>(read_bytes_) >= busy_s * least_.bytes_per_s)
    return;
  throw Error(Code::deadline_exceeded, "the client reads too slowly", "save to a faster disk");
}

std::optional<std::string> ByteSpool::try_read(size_t max_bytes) {
  require_pace();
  uint64_t at = 0;
  uint64_t waiting = 0;
  {
    const std::lock_guard lock(mutex_);
    at = read_bytes_;
    waiting = written_bytes_ - read_bytes_;
    if (waiting == 0 && !done_) return std::nullopt;
    if (waiting == 0 && error_) throw Error(*error_);
    if (waiting == 0) return std::string();
  }
  std::string bytes = base::read_at(file_.get(), std::min<uint64_t>(max_bytes, waiting), at);
  if (bytes.empty()) throw Error(Code::io, "the data buffered for the client is gone");
  at += bytes.size();
  // Only the reader's thread changes this. If the file system cannot punch holes, the space stays
  // in use until the file is closed.
  const uint64_t given_back = given_back_bytes_;
  const bool gave =
      at - given_back >= kGiveBackBytes &&
      fallocate(file_.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                static_cast<off_t>(given_back), static_cast<off_t>(at - given_back)) == 0;
  got_ = std::chrono::steady_clock::now();
  const std::lock_guard lock(mutex_);
  if (gave) given_back_bytes_ = at;
  read_bytes_ = at;
  read_on_.notify_all();
  return bytes;
}

uint64_t ByteSpool::held_bytes() {
  const std::lock_guard lock(mutex_);
  return written_bytes_ - given_back_bytes_;
}

void ByteSpool::leave() {
  const std::lock_guard lock(mutex_);
  left_ = true;
  read_on_.notify_all();
}

}  // namespace moorage::base
