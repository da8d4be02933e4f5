#include "link/call.h"

#include <sys/epoll.h>
#include <unistd.h>

#include <algorithm>
#include <boost/json.hpp>
#include <cerrno>
#include <utility>

#include "base/error.h"

namespace moorage::link {
namespace {

namespace json = boost::json;

constexpr size_t kMaxAnswerBytes = 4 << 20;  // has_tree of git objects lists names
constexpr size_t kMaxDepth = 16;

}  // namespace

std::shared_ptr<Call> Call::start(base::Loop& loop, Stream& stream, Options options, Done done) {
  std::shared_ptr<Call> call(new Call(loop, stream, std::move(options), std::move(done)));
  call->channel_ = stream.open(json::serialize(call->options_.request), call);
  call->progress();
  if (!call->options_.body) {
    stream.end(call->channel_);
    return call;
  }
  call->body_watch_.emplace(loop, call->options_.body.get(), EPOLLIN,
                            [raw = call.get()](uint32_t) { raw->pump(); });
  return call;
}

Call::Call(base::Loop& loop, Stream& stream, Options options, Done done)
    : loop_(loop),
      stream_(&stream),
      options_(std::move(options)),
      done_(std::move(done)),
      patience_(loop) {}

Call::~Call() {
  if (done_ && channel_ != 0) stream_->reset(channel_, Error(Code::conflict, "given up"));
}

void Call::progress() {
  patience_.start(options_.deadline, [this] {
    const Error error(Code::deadline_exceeded, "the other machine did not answer in time");
    finish({}, &error);
  });
}

void Call::on_data(std::string_view bytes) {
  progress();
  stream_->consumed(channel_, bytes.size());
  answer_ += bytes;
  if (answer_.size() <= kMaxAnswerBytes) return;
  const Error error(Code::corrupted, "the other machine sent an answer that is too long");
  finish({}, &error);
}

void Call::on_end() {
  json::parse_options limits;
  limits.max_depth = kMaxDepth;
  limits.allow_invalid_utf8 = true;
  boost::system::error_code error;
  const json::value value = json::parse(answer_, error, {}, limits);
  const json::object* object = error ? nullptr : value.if_object();
  if (object) return finish(*object, nullptr);
  const Error invalid(Code::corrupted, "the other machine sent an answer that is not JSON");
  finish({}, &invalid);
}

void Call::pump() {
  if (!options_.body || !body_watch_) return;
  const std::shared_ptr<Call> self = shared_from_this();
  while (body_watch_) {
    char piece[base::kMuxMaxPayload];  // the common buffer may hold frames that are being read
    const size_t room = std::min(stream_->room(channel_), sizeof piece);
    if (room == 0) return body_watch_->set_events(0);  // until on_room
    body_watch_->set_events(EPOLLIN);
    const ssize_t count = ::read(options_.body.get(), piece, room);
    if (count < 0 && (errno == EAGAIN || errno == EINTR)) return;
    progress();
    if (count > 0) {
      stream_->send(channel_, {piece, static_cast<size_t>(count)});
      continue;
    }
    body_watch_.reset();
    options_.body.reset();
    stream_->end(channel_);
  }
}

void Call::finish(const json::object& answer, const Error* error) {
  if (!done_) return;
  const std::shared_ptr<Call> self = shared_from_this();
  const Done done = std::exchange(done_, nullptr);
  patience_.stop();
  body_watch_.reset();
  options_.body.reset();
  // The channel may have an open half.
  stream_->reset(channel_, Error(Code::conflict, "answered"));
  done(answer, error);
}

}  // namespace moorage::link
