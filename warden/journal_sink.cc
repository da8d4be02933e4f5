#include "warden/journal_sink.h"

#include <errno.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#include <array>
#include <boost/json.hpp>

namespace moorage::warden {
namespace {

constexpr auto kRetryAfter = std::chrono::milliseconds(200);

int64_t wall_ns() {
  timespec now{};
  ::clock_gettime(CLOCK_REALTIME, &now);
  return now.tv_sec * 1'000'000'000LL + now.tv_nsec;
}

}  // namespace

JournalSink::JournalSink(Loop& loop, base::Fd file, uint64_t limit_bytes)
    : file_(std::move(file)), retry_(loop), limit_bytes_(limit_bytes) {}

void JournalSink::started(uint32_t pid) {
  append(base::FrameKind::started, "{\"pid\":" + std::to_string(pid) + "}");
}

void JournalSink::write(base::FrameKind kind, std::string_view bytes) {
  std::string_view kept = bytes;
  if (limit_bytes_ != 0) kept = bytes.substr(0, limit_bytes_ - kept_bytes_);
  if (!kept.empty()) append(kind, kept);
  kept_bytes_ += is_output(kind) ? kept.size() : 0;
  omitted_bytes_ += bytes.size() - kept.size();
  if (omitted_bytes_ == 0 || limit_told_) return;
  limit_told_ = true;
  append(base::FrameKind::limit, {});
}

void JournalSink::end(const ExecEnd& end) {
  boost::json::object payload{{"kind", end.kind}, {"code", end.code}, {"signal", end.signal}};
  if (!end.error.empty()) payload["error"] = end.error;
  if (!end.failure.empty()) payload["failure"] = end.failure;
  payload["omitted_bytes"] = std::to_string(omitted_bytes_);
  payload["user_ms"] = end.user_ms;
  payload["system_ms"] = end.system_ms;
  payload["max_rss_bytes"] = end.max_rss_bytes;
  payload["wall_ms"] = end.wall_ms;
  append(base::FrameKind::end, boost::json::serialize(payload));
}

void JournalSink::append(base::FrameKind kind, std::string_view payload) {
  base::FrameHeader header;
  header.kind = kind;
  header.payload_bytes = static_cast<uint32_t>(payload.size());
  header.wall_ns = wall_ns();
  header.output_offset = kept_bytes_;
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
  tell_ready();
}

}  // namespace moorage::warden
