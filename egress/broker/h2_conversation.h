// HTTP/2 between one client and one server: each stream is judged by itself. What goes to the host
// is written anew, so nothing of a connection passes but the requests that were allowed.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <string_view>

#include "egress/broker/exchange.h"
#include "egress/broker/h2_session.h"
#include "egress/broker/h2_stream.h"

namespace moorage::egress {

class H2Conversation : public Conversation, public H2Session::Listener, public H2Stream::Owner {
 public:
  H2Conversation(std::string host, uint16_t port);
  ~H2Conversation() override;

  bool takes_from_client() const override { return !client_.is_over(); }
  void from_client(std::string_view bytes) override;
  void from_server(std::string_view bytes) override;
  void server_ended() override;
  void server_failed(std::string_view why) override;
  void fill() override;
  uint64_t requests() const override { return requests_; }
  Exchange* next() override;
  bool is_over() const override { return client_.is_over(); }

 private:
  static constexpr size_t kMost = 64 << 10;  // bytes written ahead for each side

  void on_fields(H2Session& at, int32_t stream, Fields fields, bool ends) override;
  void on_body(H2Session& at, int32_t stream, std::string_view bytes) override;
  void on_body_end(H2Session& at, int32_t stream) override;
  void on_body_sent(H2Session& at, int32_t stream, size_t bytes) override;
  void on_close(H2Session& at, int32_t stream, uint32_t error) override;
  void on_going_away(H2Session& at) override;

  H2Session& client() override { return client_; }
  H2Session* server() override;
  void on_trouble(std::string_view why, bool quiet) override {
    troubles_.push_back({std::string(why), quiet});
  }
  void on_way(H2Stream& stream, int32_t at_server) override { at_server_[at_server] = &stream; }

  H2Stream* find(const H2Session& at, int32_t stream);
  void lose_server(std::string_view why);

  const H2Stream::Place place_;
  std::map<int32_t, std::unique_ptr<H2Stream>> streams_;  // by their numbers at the client
  std::map<int32_t, H2Stream*> at_server_;
  std::deque<int32_t> unjudged_;
  uint64_t requests_ = 0;
  bool server_gone_ = false;
  H2Session client_;                   // the client's side: we serve
  std::unique_ptr<H2Session> server_;  // from the first request on that passes
};

}  // namespace moorage::egress
