#include "egress/broker/broker_connection.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include "base/error.h"
#include "egress/broker/h2_conversation.h"
#include "egress/broker/http_exchange.h"

namespace moorage::egress {
namespace {

constexpr std::string_view kHttp2 = "h2";
constexpr std::string_view kNoProtocol = "no application protocol";  // OpenSSL's words
constexpr const char* kNoHttp2 =
    "it does not speak HTTP/2, the only protocol that the program offers";

void reset_on_close(const Fd& socket) {
  if (!socket) return;
  const linger now{1, 0};
  setsockopt(socket.get(), SOL_SOCKET, SO_LINGER, &now, sizeof now);
}

}  // namespace

BrokerConnection::BrokerConnection(base::Loop& loop, Meter& meter, Owner& owner,
                                   std::unique_ptr<Judge> judge, Fd client, Host host)
    : Carrier(std::move(host)),
      loop_(loop),
      meter_(meter),
      owner_(owner),
      judge_(std::move(judge)),
      timer_(loop),
      pause_(loop) {
  client_.socket = std::move(client);
}

BrokerConnection::~BrokerConnection() = default;

void BrokerConnection::start() {
  const int on = 1;
  setsockopt(client_.socket.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  try {
    client_.tls = base::TlsStream::accepting(client_.socket, judge_->server_context(host_.name));
  } catch (const Error& error) {
    owner_.on_unreachable(*this, error.message());
    return abort();
  }
  client_.watch =
      std::make_unique<base::Watch>(loop_, client_.socket.get(), EPOLLIN,
                                    [this](uint32_t events) { on_events(client_, events); });
  timer_.start(kPatienceTls, [this] { abort(); });
}

void BrokerConnection::dial(DialTarget target) {
  dialer_ = std::make_unique<Dialer>(loop_, std::move(target), [this](Dialed dialed) {
    if (!dialed.socket) return fail(dialed.error);
    dialer_.reset();
    server_.socket = std::move(dialed.socket);
    server_.tls = base::TlsStream::connecting(server_.socket, judge_->client_context(), host_.name,
                                              client_.tls.protocol());
    server_.watch =
        std::make_unique<base::Watch>(loop_, server_.socket.get(), EPOLLIN | EPOLLOUT,
                                      [this](uint32_t events) { on_events(server_, events); });
    timer_.start(kPatienceTls, [this] {
      broken(server_, "no answer");
      move();
    });
    move();
  });
}

void BrokerConnection::fail(const std::string& why) {
  owner_.on_unreachable(*this, why);
  talk_->server_failed("cannot reach " + host_.name + ": " + why);
  move();
}

void BrokerConnection::abort() {
  reset_on_close(client_.socket);
  reset_on_close(server_.socket);
  finish();
}

// The owner destroys this in a turn of its own: a caller up the stack may still use it.
void BrokerConnection::finish() {
  if (ended_) return;
  ended_ = true;
  dialer_.reset();
  for (Side* side : {&client_, &server_}) {
    side->watch.reset();
    side->tls = {};
    side->socket.reset();
  }
  pause_.stop();
  timer_.start(std::chrono::milliseconds(0), [this] { owner_.on_end(*this); });
}

void BrokerConnection::on_events(Side& side, uint32_t events) {
  if ((events & (EPOLLERR | EPOLLHUP)) != 0) events |= EPOLLIN | EPOLLOUT;
  if (&side == &client_ && (events & EPOLLRDHUP) != 0) return abort();
  if ((events & side.wants_read) != 0) side.wants_read = 0;
  if ((events & side.wants_write) != 0) side.wants_write = 0;
  move();
}

// Moves bytes until nothing goes on, or others have waited long enough.
void BrokerConnection::move() {
  bool moved = true;
  for (int i = 0; i < kRounds && !ended_ && moved; ++i) moved = move_some();
  if (ended_) return;
  set_watches();
  if (moved) pause_.start(std::chrono::milliseconds(0), [this] { move(); });
}

bool BrokerConnection::move_some() {
  bool moved = shake_hands(client_);
  if (ended_ || !client_.ready) return moved;
  if (server_.tls) moved = shake_hands(server_) || moved;
  moved = (!ended_ && has_room_for(client_) && read(client_)) || moved;
  if (!ended_) ask_judge();
  if (!ended_) talk_->fill();
  if (!ended_) connect_if_needed();
  moved = (!ended_ && server_.ready && write(server_, talk_->to_server)) || moved;
  moved = (!ended_ && server_.ready && has_room_for(server_) && read(server_)) || moved;
  moved = (!ended_ && write(client_, talk_->to_client)) || moved;
  if (!ended_) note_troubles();
  if (!ended_ && talk_->is_over() && talk_->to_client.empty()) end_softly();
  return moved;
}

bool BrokerConnection::shake_hands(Side& side) {
  if (side.ready || side.wants_read != 0 || ended_) return false;
  switch (side.tls.handshake()) {
    case base::TlsStream::Result::done:
      side.ready = true;
      timer_.stop();
      on_handshake(side);
      return true;
    case base::TlsStream::Result::again:
      side.wants_read = side.tls.wants();
      return false;
    case base::TlsStream::Result::ended:
    case base::TlsStream::Result::broken:
      broken(side, side.tls.error());
      return false;
  }
  return false;
}

void BrokerConnection::on_handshake(Side& side) {
  const bool h2 = side.tls.protocol() == kHttp2;
  if (&side == &client_ && h2)
    talk_ = std::make_unique<H2Conversation>(host_.name, host_.port);
  else if (&side == &client_)
    talk_ = std::make_unique<HttpExchange>(host_.name, host_.port);
  else if (!h2 && client_.tls.protocol() == kHttp2) {
    server_.ready = false;
    broken(server_, kNoHttp2);
  }
}

void BrokerConnection::broken(Side& side, const std::string& why) {
  if (&side == &client_) {
    if (!talk_ || talk_->requests() == 0)
      owner_.on_unreachable(*this, "the program did not accept the certificate of Moorage: " + why);
    return abort();
  }
  // Some hosts say so in an alert.
  const bool no_http2 = client_.tls.protocol() == kHttp2 && why.find(kNoProtocol) != why.npos;
  const std::string reason = no_http2 ? kNoHttp2 : why;  // `why` may be the stream's, which goes
  const bool was_ready = std::exchange(server_.ready, false);
  server_.watch.reset();
  server_.tls = {};
  if (!was_ready) {
    owner_.on_unreachable(*this, "TLS: " + reason);
    return talk_->server_failed("no TLS connection to " + host_.name + ": " + reason);
  }
  server_.ended = true;
  talk_->server_ended();
}

bool BrokerConnection::has_room_for(const Side& from) const {
  if (closing_ || from.ended || from.wants_read != 0) return false;
  if (&from == &client_) return talk_->takes_from_client() && talk_->to_server.size() < kMost;
  return talk_->to_client.size() < kMost;
}

bool BrokerConnection::read(Side& side) {
  if (meter_.pause_ms() > 0) return false;
  const auto buffer = base::io_buffer();
  size_t size = 0;
  const base::TlsStream::Result result = side.tls.read(buffer, size);
  const std::string_view bytes(buffer.data(), size);
  const bool is_client = &side == &client_;
  if (!bytes.empty()) {
    meter_.count(!is_client, bytes.size());
    if (is_client)
      talk_->from_client(bytes);
    else
      talk_->from_server(bytes);
  }
  if (result == base::TlsStream::Result::again) side.wants_read = side.tls.wants();
  if (result == base::TlsStream::Result::ended && is_client) {
    finish();
  } else if (result == base::TlsStream::Result::ended ||
             result == base::TlsStream::Result::broken) {
    broken(side, side.tls.error());
  } else if (meter_.used_up()) {
    abort();
  }
  return !bytes.empty();
}

bool BrokerConnection::write(Side& side, std::string& bytes) {
  if (bytes.empty() || side.wants_write != 0) return false;
  const size_t before = bytes.size();
  const base::TlsStream::Result result = side.tls.write(bytes);
  if (result == base::TlsStream::Result::again) side.wants_write = side.tls.wants();
  if (result == base::TlsStream::Result::broken || result == base::TlsStream::Result::ended)
    broken(side, side.tls.error());
  return bytes.size() < before;
}

void BrokerConnection::ask_judge() {
  const std::weak_ptr<bool> alive(alive_);
  while (Exchange* const exchange = talk_->next()) {
    judge_->on_request(*exchange, [this, alive] {
      if (!alive.expired() && !ended_) move();
    });
  }
}

void BrokerConnection::note_troubles() {
  for (const auto& [why, quiet] : talk_->take_troubles()) owner_.on_refused(*this, why, quiet);
}

void BrokerConnection::connect_if_needed() {
  if (talk_->to_server.empty() || asked_way_) return;
  asked_way_ = true;
  // A stream speaks HTTP/1.1, as git does.
  const bool streams = client_.tls.protocol() != kHttp2 &&
                       judge_->open_stream([this](Fd stream, const std::string& error) {
                         use_stream(std::move(stream), error);
                       });
  if (!streams) owner_.find_way(*this);
}

void BrokerConnection::use_stream(Fd stream, const std::string& error) {
  if (!stream) return fail(error);
  server_.socket = std::move(stream);
  server_.tls = base::TlsStream::plain(server_.socket);
  server_.ready = true;
  server_.watch =
      std::make_unique<base::Watch>(loop_, server_.socket.get(), EPOLLIN,
                                    [this](uint32_t events) { on_events(server_, events); });
  move();
}

void BrokerConnection::set_watches() {
  const int64_t wait_ms = meter_.pause_ms();
  const auto want = [&](Side& side, bool writes) {
    if (!side.watch) return;
    uint32_t events = 0;
    const bool reads = !side.ready || (side.wants_read != 0 && wait_ms == 0);
    if (reads) events |= side.wants_read;
    if (side.ready && writes) events |= side.wants_write;
    // While its request is answered nothing is read from the client, but it may leave.
    if (&side == &client_ && side.ready && !reads) events |= EPOLLRDHUP;
    side.watch->set_events(events);
  };
  want(client_, talk_ && !talk_->to_client.empty());
  want(server_, talk_ && !talk_->to_server.empty());
  if (wait_ms > 0) pause_.start(std::chrono::milliseconds(wait_ms), [this] { move(); });
}

// What the client still sends is read and dropped: a close with unread bytes would be a reset,
// which can overtake the answer.
void BrokerConnection::end_softly() {
  if (closing_) return;
  closing_ = true;
  server_.watch.reset();
  server_.tls.close();
  server_.tls = {};
  server_.socket.reset();
  client_.tls.close();
  shutdown(client_.socket.get(), SHUT_WR);
  client_.watch.reset();
  client_.watch =
      std::make_unique<base::Watch>(loop_, client_.socket.get(), EPOLLIN, [this](uint32_t) {
        const auto buffer = base::io_buffer();
        const ssize_t size = recv(client_.socket.get(), buffer.data(), buffer.size(), MSG_DONTWAIT);
        if (size == 0 || (size < 0 && errno != EAGAIN && errno != EINTR)) finish();
      });
  timer_.start(kPatienceLast, [this] { finish(); });
}

}  // namespace moorage::egress
