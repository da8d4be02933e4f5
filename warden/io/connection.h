// One HTTP/1.1 connection of the daemon: one request at a time, kept alive between requests. The
// bytes are untrusted in size and shape: header <= 16 KiB, body <= kMaxBodyBytes; an incomplete
// request times out after 10 s, an unread answer after 60 s. Descriptors (SCM_RIGHTS) that arrive
// with a request's bytes belong to it; at most kMaxFds, the rest are closed. An answer is either
// one `respond`, or begin_stream, send_envelope..., end_stream. It may come after the handler
// returned: keep a weak_ptr.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/os/fd.h"
#include "warden/io/loop.h"

namespace moorage::warden {

inline constexpr size_t kMaxHeaderBytes = 16 << 10;
// The kernel's 2 MiB of arguments, each byte as \u0001 in JSON; 1 MiB of input as base64 is less.
inline constexpr size_t kMaxBodyBytes = (2 << 20) * 6 + (1 << 20);
inline constexpr size_t kMaxFds = 16;

struct HttpRequest {
  std::string method;
  std::string target;
  std::map<std::string, std::string> headers;  // names in lower case
  std::string body;
  std::vector<Fd> fds;

  std::optional<std::string> header(const std::string& lower_case_name) const;
};

std::string lower_case(std::string_view text);  // of ASCII letters

class Connection : public std::enable_shared_from_this<Connection> {
 public:
  using Handler = std::function<void(const std::shared_ptr<Connection>&, HttpRequest&&)>;
  using Closed = std::function<void(Connection*)>;

  Connection(Loop& loop, Fd socket, Handler handler, Closed closed);
  ~Connection();
  void start();  // once a shared_ptr owns it

  void respond(int status, std::string_view content_type, std::string_view body);
  void begin_stream();
  void send_envelope(std::string_view json) { send_envelope(0, json); }
  void end_stream(std::string_view json);  // its end-of-stream message

  bool congested() const;  // the stream's reader is behind
  void on_relief(std::function<void()> task) { relief_ = std::move(task); }  // no longer congested
  bool idle() const;                                                         // between two requests
  bool closed() const { return !socket_; }
  void close();

 private:
  struct Parser;
  void on_events(uint32_t events);
  void read_some();
  void parse();
  void hand_over();
  void refuse(int status, std::string_view text);
  void answer_done();
  void queue(std::string_view bytes);
  void send_envelope(uint8_t flags, std::string_view json);
  void flush();
  void update_watch();

  Loop& loop_;
  Fd socket_;
  std::unique_ptr<Watch> watch_;
  Timer request_deadline_;
  Timer write_deadline_;
  Handler handler_;
  Closed closed_;
  std::function<void()> relief_;
  std::unique_ptr<Parser> parser_;
  std::string in_;
  std::vector<Fd> fds_;
  std::string out_;
  size_t sent_ = 0;         // bytes of out_ already sent
  bool answering_ = false;  // a request was handed over and its answer is incomplete
  bool close_after_ = false;
};

}  // namespace moorage::warden
