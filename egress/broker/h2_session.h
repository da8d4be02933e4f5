// One side of an HTTP/2 connection (RFC 9113) on nghttp2, which checks frames and the form of
// messages. What waits in it is bounded: streams, heads, and a window of each body. Knows no
// sockets.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>

#include "egress/broker/http_message.h"

struct nghttp2_session;

namespace moorage::egress {

class H2Session {
 public:
  enum class Role { server, client };

  // Called while receive() or send() run. May submit to both sessions of a conversation.
  struct Listener {
    virtual ~Listener() = default;
    // A head, an interim head or trailers; the fields of HTTP/2 itself, like ":path", come first.
    virtual void on_fields(H2Session& at, int32_t stream, Fields fields, bool ends) = 0;
    virtual void on_body(H2Session& at, int32_t stream, std::string_view bytes) = 0;
    virtual void on_body_end(H2Session& at, int32_t stream) = 0;
    virtual void on_body_sent(H2Session& at, int32_t stream, size_t bytes) = 0;
    virtual void on_close(H2Session& at, int32_t stream, uint32_t error) = 0;
    virtual void on_going_away(H2Session& at) = 0;  // it takes no new streams
  };

  H2Session(Role role, Listener& listener);
  ~H2Session();
  H2Session(const H2Session&) = delete;
  H2Session& operator=(const H2Session&) = delete;

  // If the other side breaks the protocol, it is_over(): at once after a flood, or when the last
  // frames are sent.
  void receive(std::string_view bytes);
  void send(std::string& to, size_t most);  // appends until it has `most` bytes
  bool is_over() const;                     // nothing will come or go any more

  // The stream's number, or 0: no more are possible.
  int32_t request(const Fields& fields, bool ends);
  void head(int32_t stream, const Fields& fields);  // interim
  void answer(int32_t stream, const Fields& fields, bool ends);
  void body(int32_t stream, std::string_view bytes);
  void end(int32_t stream, Fields trailers);
  void reset(int32_t stream, uint32_t error);
  void go_away();  // takes no new streams; is_over() once the others have ended
  // So many bytes of a body are not waited with any more: the other side may send as many.
  void consumed(int32_t stream, size_t bytes);

  static constexpr uint32_t kStreams = 64;          // open at once
  static constexpr uint32_t kWindow = 256 << 10;    // of a stream: what of its body may wait
  static constexpr uint32_t kAllWindows = 1 << 20;  // of all streams together
  static constexpr size_t kMaxHead = 64 << 10;      // as nghttp2 sums it up
  static constexpr size_t kMaxFields = 200;

 private:
  struct Body {
    std::string bytes;
    size_t sent = 0;  // of them
    bool ended = false;
    Fields trailers;
  };
  struct Head {
    Fields fields;
    size_t size = 0;
  };
  struct Callbacks;
  friend struct Callbacks;

  Body& begin_body(int32_t stream);
  void resume(int32_t stream);

  bool flooded_ = false;
  const Role role_;
  Listener& listener_;
  nghttp2_session* session_ = nullptr;
  std::map<int32_t, Body> bodies_;        // on their way out
  std::map<int32_t, Head> heads_;         // that come in
  std::map<int32_t, size_t> unconsumed_;  // bytes that came
};

}  // namespace moorage::egress
