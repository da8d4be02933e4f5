// One request over HTTP/2 and its answer: a stream on each side.
#pragma once

#include <string>
#include <string_view>

#include "egress/broker/exchange.h"
#include "egress/broker/h2_session.h"
#include "egress/broker/secret_filter.h"

namespace moorage::egress {

class H2Stream : public Exchange {
 public:
  // The conversation that it belongs to.
  struct Owner {
    virtual ~Owner() = default;
    virtual H2Session& client() = 0;
    virtual H2Session* server() = 0;  // null: the host cannot be reached any more
    virtual void on_trouble(std::string_view why, bool quiet) = 0;
    virtual void on_way(H2Stream& stream, int32_t at_server) = 0;  // its number there
  };
  struct Place {
    std::string host;  // in the spelling of host_name.h
    uint16_t port = 0;
  };

  H2Stream(Owner& owner, int32_t id, const Place& place) : owner_(owner), place_(place), id_(id) {}

  // Of the client. False: answered, not to be judged.
  bool on_request(Fields fields, bool ends);
  void on_request_body(std::string_view bytes);
  void on_request_end();
  // Of the host.
  void on_fields(Fields fields, bool ends);
  void on_answer_body(std::string_view bytes);
  void on_answer_end();
  void on_host_close(uint32_t error);

  bool is_judged() const { return state_ == State::judging; }
  int32_t at_server() const { return at_server_; }
  int32_t id() const { return id_; }

  const RequestHead& request() const override { return head_; }
  void pass(const HeadChange& change) override;
  void answer(int status, std::string_view message) override;
  void refuse(std::string_view why, bool quiet = false) override;
  // Git, whose pushes are judged by their body, never needs HTTP/2.
  void gather(std::function<void()> listener) override;
  const std::string& gathered() const override { return waiting_; }
  bool gathered_all() const override { return request_ended_; }
  void answer_at_end(std::string_view type, std::string_view body) override;

 private:
  enum class State { judging, passing, answering, over };
  static constexpr int kMaxInterim = 16;  // heads before an answer

  std::string take_pseudo(Fields& fields);
  void on_answer_head(ResponseHead head, bool ends);
  void on_trailers(Fields fields);
  bool refuse_unauthorized(const Fields& fields);
  bool repeats_secret(const Fields& fields) const;
  void leave_host(uint32_t error);
  bool is_grpc() const;

  Owner& owner_;
  const Place& place_;
  const int32_t id_;
  int32_t at_server_ = 0;
  State state_ = State::judging;
  RequestHead head_;
  std::string waiting_;  // of the request's body, while it is judged
  bool request_ended_ = false;
  int interim_ = 0;
  SecretFilter filter_;
};

}  // namespace moorage::egress
