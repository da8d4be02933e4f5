#include "warden/output/journal_sink.h"

#include <errno.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <boost/json.hpp>

namespace moorage::warden {
namespace {

constexpr auto kRetryAfter = std::chrono::milliseconds(200);
constexpr auto kRoomPatience = std::chrono::milliseconds(2'000);
constexpr auto kRoomPause = std::chrono::milliseconds(10);
constexpr uint64_t kBlockBytes = 512;  // of st_blocks

int64_t wall_ns() {
  timespec now{};
  ::clock_gettime(CLOCK_REALTIME, &now);
  return now.tv_sec * 1'000'000'000LL + now.tv_nsec;
}

}  // namespace

JournalSink::JournalSink(Loop& loop, Fd file, JournalRoom room)
    : file_(std::move(file)), retry_(loop), room_timer_(loop), room_(room) {}

void JournalSink::started(uint32_t pid, bool merged) {
  boost::json::object payload{{"pid", pid}};
  if (merged) payload["merge_output"] = true;
  append(base::FrameKind::started, boost::json::serialize(payload), wall_ns());
}

void JournalSink::write(base::FrameKind kind, std::string_view bytes) {
  if (!ended_ && room_.file_bytes == 0) return write_to_limit(kind, bytes);
  if (!has_room()) {
    drop(kind, bytes);
  } else {
    write_dropped();
    write_output({kind, wall_ns(), {}}, bytes);
  }
  if (!ended_ && !dropping_ && !has_room()) wait_for_room();
}

bool JournalSink::has_room() {
  if (ended_ && late_bytes_ >= kLateBytes) return false;
  if (room_.file_bytes == 0 || file_bytes_ < room_.file_bytes) return true;
  struct stat status {};
  if (::fstat(file_.get(), &status) != 0) return false;
  return static_cast<uint64_t>(status.st_blocks) * kBlockBytes < room_.file_bytes;
}

void JournalSink::wait_for_room() {
  if (full_since_ms_ == 0) full_since_ms_ = monotonic_ms();
  if (has_room() || monotonic_ms() - full_since_ms_ >= kRoomPatience.count()) {
    full_since_ms_ = 0;
    return notify_ready();
  }
  room_timer_.start(kRoomPause, [this] { wait_for_room(); });
}

void JournalSink::write_output(const Piece& piece, std::string_view bytes) {
  append(piece.kind, bytes, piece.wall_ns);
  offset_ += bytes.size();
  if (ended_) late_bytes_ += bytes.size();
}

void JournalSink::write_to_limit(base::FrameKind kind, std::string_view bytes) {
  const uint64_t room = room_.output_bytes == 0 ? UINT64_MAX : room_.output_bytes - offset_;
  const std::string_view kept = bytes.substr(0, std::min<uint64_t>(room, bytes.size()));
  if (!kept.empty()) write_output({kind, wall_ns(), {}}, kept);
  if (kept.size() == bytes.size()) return;
  if (omitted_bytes_ == 0) append(base::FrameKind::limit, {}, wall_ns());
  omitted_bytes_ += bytes.size() - kept.size();
}

void JournalSink::drop(base::FrameKind kind, std::string_view bytes) {
  const int64_t now = wall_ns();
  if (!dropping_) {
    dropping_ = true;
    gap_ = {0, 0, now, now};
    append(base::FrameKind::limit, {}, now);
  }
  tail_.push_back({kind, now, std::string(bytes)});
  tail_bytes_ += bytes.size();
  while (tail_bytes_ > kTailBytes) {
    const Piece& first = tail_.front();
    gap_.dropped_bytes += first.bytes.size();
    gap_.last_ns = first.wall_ns;
    tail_bytes_ -= first.bytes.size();
    tail_.pop_front();
  }
}

void JournalSink::write_dropped() {
  if (!dropping_) return;
  dropping_ = false;
  if (gap_.dropped_bytes > 0) {
    append(base::FrameKind::gap, base::encode_gap(gap_), wall_ns());
    offset_ += gap_.dropped_bytes;
    if (!ended_) omitted_bytes_ += gap_.dropped_bytes;
  }
  for (const Piece& piece : tail_) write_output(piece, piece.bytes);
  std::deque<Piece>().swap(tail_);
  tail_bytes_ = 0;
}

void JournalSink::end(const ExecEnd& end) {
  write_dropped();
  full_since_ms_ = 0;
  room_timer_.stop();
  boost::json::object payload{{"kind", end.kind}, {"code", end.code}, {"signal", end.signal}};
  if (!end.error.empty()) payload["error"] = end.error;
  if (!end.failure.empty()) payload["failure"] = end.failure;
  payload["omitted_bytes"] = std::to_string(omitted_bytes_);
  payload["user_ms"] = end.user_ms;
  payload["system_ms"] = end.system_ms;
  payload["max_rss_bytes"] = end.max_rss_bytes;
  payload["wall_ms"] = end.wall_ms;
  if (end.input_read) payload["input_read"] = std::to_string(*end.input_read);
  append(base::FrameKind::end, boost::json::serialize(payload), wall_ns());
  ended_ = true;
}

void JournalSink::stop() {
  write_dropped();
  append(base::FrameKind::limit, {}, wall_ns());
}

void JournalSink::append(base::FrameKind kind, std::string_view payload, int64_t wall_ns) {
  base::FrameHeader header;
  header.kind = kind;
  header.payload_bytes = static_cast<uint32_t>(payload.size());
  header.wall_ns = wall_ns;
  header.output_offset = offset_;
  file_bytes_ += base::kFrameHeaderBytes + payload.size();
  std::array<char, base::kFrameHeaderBytes> head = base::encode_frame_header(header, payload);
  size_t done = 0;
  if (held_.empty()) {
    std::array<iovec, 2> parts{
        {{head.data(), head.size()}, {const_cast<char*>(payload.data()), payload.size()}}};
    ssize_t count = 0;
    do {
      count = ::writev(file_.get(), parts.data(), parts.size());
    } while (count < 0 && errno == EINTR);
    done = static_cast<size_t>(std::max<ssize_t>(count, 0));
  }
  if (done == head.size() + payload.size()) return;
  if (done < head.size()) {
    held_.append(head.data() + done, head.size() - done);
    done = head.size();
  }
  held_ += payload.substr(done - head.size());
  if (!retry_.running()) retry_.start(kRetryAfter, [this] { retry(); });
}

void JournalSink::retry() {
  ssize_t count = ::write(file_.get(), held_.data(), held_.size());
  if (count > 0) held_.erase(0, static_cast<size_t>(count));
  if (!held_.empty()) {
    retry_.start(kRetryAfter, [this] { retry(); });
    return;
  }
  std::string().swap(held_);
  notify_ready();
}

}  // namespace moorage::warden
