#include "egress/broker/h2_conversation.h"

#include <nghttp2/nghttp2.h>

#include <vector>

namespace moorage::egress {
namespace {

constexpr int kBadGateway = 502;

}  // namespace

H2Conversation::H2Conversation(std::string host, uint16_t port)
    : place_{std::move(host), port}, client_(H2Session::Role::server, *this) {}
H2Conversation::~H2Conversation() = default;

H2Session* H2Conversation::server() {
  if (!server_ && !server_gone_)
    server_ = std::make_unique<H2Session>(H2Session::Role::client, *this);
  return server_gone_ ? nullptr : server_.get();
}

void H2Conversation::from_client(std::string_view bytes) {
  client_.receive(bytes);
  fill();
}

void H2Conversation::from_server(std::string_view bytes) {
  if (server_gone_ || !server_) return;
  server_->receive(bytes);
  fill();
}

void H2Conversation::server_ended() { lose_server("the host closed the connection"); }
void H2Conversation::server_failed(std::string_view why) { lose_server(why); }

// Its session stays: this may be called by it.
void H2Conversation::lose_server(std::string_view why) {
  if (std::exchange(server_gone_, true)) return;
  at_server_.clear();
  to_server.clear();
  for (const auto& [id, stream] : streams_) stream->answer(kBadGateway, why);
  client_.go_away();
  fill();
}

void H2Conversation::fill() {
  client_.send(to_client, kMost);
  if (!server_ || server_gone_) return;
  server_->send(to_server, kMost);
  if (server_->is_over()) lose_server("the host's answer: not valid HTTP/2");
}

Exchange* H2Conversation::next() {
  while (!unjudged_.empty()) {
    const auto stream = streams_.find(unjudged_.front());
    unjudged_.pop_front();
    if (stream != streams_.end() && stream->second->is_judged()) return stream->second.get();
  }
  return nullptr;
}

H2Stream* H2Conversation::find(const H2Session& at, int32_t stream) {
  if (&at == &client_) {
    const auto found = streams_.find(stream);
    return found == streams_.end() ? nullptr : found->second.get();
  }
  const auto found = at_server_.find(stream);
  return found == at_server_.end() ? nullptr : found->second;
}

void H2Conversation::on_fields(H2Session& at, int32_t id, Fields fields, bool ends) {
  H2Stream* const stream = find(at, id);
  if (&at != &client_) {
    if (stream != nullptr) stream->on_fields(std::move(fields), ends);
    return;
  }
  if (stream != nullptr) return;  // trailers of a request, which no program needs
  ++requests_;
  auto& made = streams_[id] = std::make_unique<H2Stream>(*this, id, place_);
  if (made->on_request(std::move(fields), ends)) unjudged_.push_back(id);
}

void H2Conversation::on_body(H2Session& at, int32_t id, std::string_view bytes) {
  H2Stream* const stream = find(at, id);
  if (stream == nullptr)
    at.consumed(id, bytes.size());
  else if (&at == &client_)
    stream->on_request_body(bytes);
  else
    stream->on_answer_body(bytes);
}

void H2Conversation::on_body_end(H2Session& at, int32_t id) {
  H2Stream* const stream = find(at, id);
  if (stream == nullptr) return;
  if (&at == &client_)
    stream->on_request_end();
  else
    stream->on_answer_end();
}

// Room for as many bytes from the other side.
void H2Conversation::on_body_sent(H2Session& at, int32_t id, size_t bytes) {
  const H2Stream* const stream = find(at, id);
  if (stream == nullptr) return;
  if (&at != &client_)
    client_.consumed(stream->id(), bytes);
  else if (stream->at_server() != 0 && server_ && !server_gone_)
    server_->consumed(stream->at_server(), bytes);
}

void H2Conversation::on_close(H2Session& at, int32_t id, uint32_t error) {
  H2Stream* const stream = find(at, id);
  if (stream == nullptr) return;
  if (&at != &client_) {
    at_server_.erase(id);
    return stream->on_host_close(error);
  }
  const int32_t there = stream->at_server();
  at_server_.erase(there);
  streams_.erase(id);
  if (there != 0 && server_ && !server_gone_) server_->reset(there, NGHTTP2_CANCEL);
}

// The client must open another connection for its next request.
void H2Conversation::on_going_away(H2Session& at) {
  if (&at != &client_) client_.go_away();
}

}  // namespace moorage::egress
