#include "fake_exec.h"

#include <algorithm>
#include <chrono>

namespace moorage::test {

using base::RecordKind;

bool FakeExec::handle(Call& call) {
  if (call.is("POST /v1/workspaces/auth/execs")) {
    post(call);
  } else if (call.is("GET /v1/execs/ex_7/output")) {
    stream(call, std::stoull(call.query("offset")), call.query("follow") == "1");
  } else if (call.is("PUT /v1/execs/ex_7/stdin")) {
    put_stdin(call);
  } else if (call.is("GET /v1/execs/ex_7")) {
    const std::lock_guard lock(mutex_);
    call.reply(200, record(), json_header());
  } else if (call.is("POST /v1/execs/ex_7/signal") || call.is("POST /v1/execs/ex_7/cancel")) {
    const std::string body = call.body();
    const std::string name = call.path.ends_with("cancel") ? "cancel" : body;
    {
      const std::lock_guard lock(mutex_);
      signals_.push_back(name);
    }
    call.reply(200, "{}", json_header());
    if (on_signal) on_signal(name);
  } else if (call.is("POST /v1/execs/ex_7/resize")) {
    const std::string body = call.body();
    const std::lock_guard lock(mutex_);
    signals_.push_back("resize " + body);
    call.reply(200, "{}", json_header());
  } else {
    return false;
  }
  return true;
}

void FakeExec::write(RecordKind kind, std::string bytes) {
  const std::lock_guard lock(mutex_);
  output_.push_back({kind, std::move(bytes)});
  changed_.notify_all();
}

void FakeExec::finish(const std::string& end_fields) {
  const std::lock_guard lock(mutex_);
  end_ = end_fields;
  changed_.notify_all();
}

void FakeExec::break_streams_after(std::vector<size_t> bytes) {
  const std::lock_guard lock(mutex_);
  breaks_ = std::move(bytes);
}

std::string FakeExec::record() const {
  size_t bytes = 0;
  for (const Piece& piece : output_) bytes += piece.bytes.size();
  return R"({"id":"ex_7","workspace":"ws_1","argv":["true"],"stdin_accepted":)" +
         std::to_string(stdin_.size()) + R"(,"output_bytes":)" + std::to_string(bytes) + "," +
         (end_.empty() ? R"("state":"running")" : end_) + "}";
}

std::string FakeExec::records_from(uint64_t offset) const {
  std::string bytes =
      base::encode_record(RecordKind::position, R"({"offset":)" + std::to_string(offset) + "}");
  uint64_t at = 0;
  for (const Piece& piece : output_) {
    const uint64_t end = at + piece.bytes.size();
    if (end > offset) {
      const size_t skip = offset > at ? static_cast<size_t>(offset - at) : 0;
      bytes += base::encode_record(piece.kind, std::string_view(piece.bytes).substr(skip));
    }
    at = end;
  }
  return bytes;
}

void FakeExec::post(Call& call) {
  const std::string body = call.body();
  const std::string key = call.headers["idempotency-key"];
  bool lose = false;
  {
    const std::lock_guard lock(mutex_);
    posted_body_ = body;
    const bool known = std::find(post_keys_.begin(), post_keys_.end(), key) != post_keys_.end();
    post_keys_.push_back(key);
    if (!known) ++starts_;
    lose = static_cast<int>(post_keys_.size()) <= lose_first_posts;
  }
  if (lose) return call.drop();
  if (call.headers["accept"] == "application/vnd.moorage.output") return stream(call, 0, true);
  const std::lock_guard lock(mutex_);
  call.reply(201, record(), json_header());
}

void FakeExec::stream(Call& call, uint64_t offset, bool follow) {
  call.begin(200, "Content-Type: application/vnd.moorage.output\r\nMoorage-Exec: ex_7\r\n");
  size_t sent = 0;
  std::unique_lock lock(mutex_);
  for (;;) {
    std::string bytes = records_from(offset);
    if (!end_.empty()) bytes += base::encode_record(RecordKind::end, record());
    const bool last = !end_.empty() || !follow;
    std::string_view rest = std::string_view(bytes).substr(sent);
    if (!breaks_.empty() && sent + rest.size() > breaks_.front()) {
      const size_t until = breaks_.front() > sent ? breaks_.front() - sent : 0;
      breaks_.erase(breaks_.begin());
      lock.unlock();
      call.chunk(rest.substr(0, until));
      return call.drop();
    }
    lock.unlock();
    if (!rest.empty() && !call.chunk(rest)) return call.drop();
    sent = bytes.size();
    if (last) return call.end();
    lock.lock();
    changed_.wait_for(lock, std::chrono::milliseconds(20));
    if (!call.client_waits()) return call.drop();
  }
}

void FakeExec::put_stdin(Call& call) {
  if (!takes_stdin) {
    // What the client sends stays unread in the socket, as with a command that never reads.
    call.wait_until_client_leaves();
    return call.drop();
  }
  const std::string body = call.body();
  const uint64_t offset = std::stoull(call.query("offset"));
  std::unique_lock lock(mutex_);
  if (!end_.empty()) return call.reply(409, R"({"code":"conflict","message":"it has ended"})");
  if (offset != stdin_.size())
    return call.reply(400, R"({"code":"invalid_argument","message":"gap"})");
  const size_t number = puts_++;
  const bool broken =
      std::find(stdin_breaks.begin(), stdin_breaks.end(), number) != stdin_breaks.end();
  stdin_ += broken ? body.substr(0, body.size() - std::min(stdin_lost_part, body.size())) : body;
  stdin_closed_ = stdin_closed_ || (call.query("close") == "1" && !broken);
  if (broken) return call.drop();
  const std::string read = stdin_read ? R"(,"read":)" + std::to_string(*stdin_read) : "";
  call.reply(200, R"({"accepted":)" + std::to_string(stdin_.size()) + read + "}", json_header());
}

std::string FakeExec::stdin_bytes() const {
  const std::lock_guard lock(mutex_);
  return stdin_;
}

bool FakeExec::stdin_closed() const {
  const std::lock_guard lock(mutex_);
  return stdin_closed_;
}

std::string FakeExec::posted_body() const {
  const std::lock_guard lock(mutex_);
  return posted_body_;
}

std::vector<std::string> FakeExec::post_keys() const {
  const std::lock_guard lock(mutex_);
  return post_keys_;
}

std::vector<std::string> FakeExec::signals() const {
  const std::lock_guard lock(mutex_);
  return signals_;
}

}  // namespace moorage::test
