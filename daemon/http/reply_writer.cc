#include "daemon/http/reply_writer.h"

#include <poll.h>

#include <boost/asio/buffer.hpp>
#include <boost/system/system_error.hpp>

#include "daemon/http/http_text.h"

namespace moorage::daemon {
namespace {

using Steady = std::chrono::steady_clock;

// A silent stream must poll to notice that its reader left.
bool peer_left(int socket) {
  pollfd state{socket, POLLOUT, 0};
  return ::poll(&state, 1, 0) > 0 && (state.revents & (POLLHUP | POLLERR)) != 0;
}

[[noreturn]] void throw_gone() {
  throw boost::system::system_error(boost::asio::error::connection_reset);
}

}  // namespace

struct ReplyWriter::Pump {
  Reply& reply;
  Options options;
  std::shared_ptr<Wake> wake;
  Steady::time_point silent_since = Steady::now();
  bool started = false;
  bool head_sent = false;
  uint64_t sent_bytes = 0;

  bool chunked() const { return !reply.source_bytes && options.chunks_allowed; }
};

void ReplyWriter::stop() {
  stopped_ = true;
  if (endless_ && waiting_) waiting_->ring();
}

Awaitable<void> ReplyWriter::write_all(std::string_view bytes) {
  while (!bytes.empty()) {
    stream_.expires_after(limits_.progress);
    const auto buffer = asio::buffer(bytes.data(), bytes.size());
    const size_t written = co_await stream_.async_write_some(buffer, asio::use_awaitable);
    bytes.remove_prefix(written);
  }
  stream_.expires_never();
}

Awaitable<bool> ReplyWriter::write(Reply reply, Options options) {
  if (reply.source) {
    const bool whole = co_await write_source(reply, options);
    co_return whole;
  }
  const Head head{.status = reply.status,
                  .content_type = reply.content_type,
                  .headers = &reply.headers,
                  .length = reply.body.size(),
                  .chunked = false,
                  .close = options.close};
  if (options.answers != nullptr) options.answers->add(reply.status);
  std::string out = response_head(head);
  if (reply.status != 204) out += reply.body;
  co_await write_all(out);
  co_return !options.close;
}

Awaitable<bool> ReplyWriter::write_source(Reply& reply, Options options) {
  // Without a length or chunks, only the end of the connection ends the body.
  options.close = options.close || (!reply.source_bytes && !options.chunks_allowed);
  const auto loop = co_await asio::this_coro::executor;
  Pump pump{.reply = reply, .options = options, .wake = std::make_shared<Wake>(loop)};
  waiting_ = pump.wake;
  endless_ = reply.source->endless();
  for (;;) {
    if (stopped_ && endless_) throw_gone();
    std::optional<base::Error> refused;
    BodySource::Step step;
    try {
      step = co_await next_step(pump);
    } catch (...) {
      refused = current_error();
    }
    if (refused && pump.head_sent) throw_gone();
    if (refused) step.instead = std::make_shared<Reply>(error_reply(*refused));
    if (step.instead) {
      Reply instead = std::move(*step.instead);
      const bool whole = co_await write(std::move(instead), options);
      co_return whole;
    }
    const bool last = step.next == BodySource::Next::end;
    if (last || !step.bytes.empty()) co_await emit(pump, step.bytes, last);
    if (last) break;
    if (step.next == BodySource::Next::wait) co_await rest(pump, step);
  }
  // A body shorter than promised must not look complete.
  if (reply.source_bytes && *reply.source_bytes != pump.sent_bytes) throw_gone();
  waiting_.reset();
  co_return !options.close;
}

Awaitable<BodySource::Step> ReplyWriter::next_step(Pump& pump) {
  const auto read = [&pump] {
    if (!std::exchange(pump.started, true)) pump.reply.source->start(pump.wake->handle());
    return pump.reply.source->read();
  };
  auto step = co_await on_lane(worker_pools_, pump.options.lane, pump.options.share, read);
  co_return step;
}

// Waits until the source has news, wants to be read again, or needs a keep-alive.
Awaitable<void> ReplyWriter::rest(Pump& pump, const BodySource::Step& step) {
  using std::chrono::milliseconds;
  const auto again =
      step.again_after ? Steady::now() + *step.again_after : Steady::time_point::max();
  for (;;) {
    const auto speak = pump.silent_since + limits_.keep_alive;
    const auto pause = std::chrono::ceil<milliseconds>(std::min(again, speak) - Steady::now());
    const bool woken = co_await pump.wake->wait(std::max(pause, milliseconds(0)));
    if (woken || Steady::now() >= again) co_return;
    if (peer_left(stream_.socket().native_handle())) throw_gone();
    const auto say = [&pump] { return pump.reply.source->keep_alive(); };
    const std::string still_here =
        co_await on_lane(worker_pools_, pump.options.lane, pump.options.share, say);
    if (!still_here.empty()) co_await emit(pump, still_here, false);
    pump.silent_since = Steady::now();
  }
}

Awaitable<void> ReplyWriter::emit(Pump& pump, std::string_view bytes, bool last) {
  std::string out;
  if (!std::exchange(pump.head_sent, true)) {
    if (last && !pump.reply.source_bytes) pump.reply.source_bytes = bytes.size();
    const Head head{.status = pump.reply.status,
                    .content_type = pump.reply.content_type,
                    .headers = &pump.reply.headers,
                    .length = pump.reply.source_bytes,
                    .chunked = pump.chunked(),
                    .close = pump.options.close};
    out = response_head(head);
    if (pump.options.answers != nullptr) pump.options.answers->add(pump.reply.status);
  }
  if (!pump.chunked()) {
    out += bytes;
  } else if (!bytes.empty()) {
    out += chunk_start(bytes.size());
    out += bytes;
    out += kChunkEnd;
  }
  if (last && pump.chunked()) out += kLastChunk;
  pump.sent_bytes += bytes.size();
  pump.silent_since = Steady::now();
  co_await write_all(out);
}

}  // namespace moorage::daemon
