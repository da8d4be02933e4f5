// An HTTP server on loopback whose answers a test writes: plain, or with TLS. One thread for each
// connection; a handler may write what it likes.
#pragma once

#include <atomic>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>

#include "base/net/certificates.h"
#include "base/os/fd.h"

struct ssl_ctx_st;

namespace moorage::link_test {

class Connection {
 public:
  virtual ~Connection() = default;
  virtual bool write(std::string_view bytes) = 0;  // false: the client left
  virtual std::string read() = 0;                  // empty: the client left
};

struct Received {
  std::string head;  // request line and headers
  std::string body;
  bool is(std::string_view method_and_path) const;  // "GET /v2/sandboxes", in front of any query
};

class ScriptedServer {
 public:
  // Called for each request; false ends the connection.
  using Handler = std::function<bool(const Received&, Connection&)>;
  explicit ScriptedServer(Handler handler, const base::IssuedCertificate* certificate = nullptr);
  ~ScriptedServer();

  std::string url() const;
  int requests() const { return requests_; }

 private:
  void serve(Fd socket);

  const Handler handler_;
  std::shared_ptr<ssl_ctx_st> tls_;
  Fd listener_;
  Fd stop_;
  uint16_t port_ = 0;
  std::atomic<int> requests_{0};
  std::mutex mutex_;
  std::list<int> sockets_;  // borrowed, of the connections that live
  std::list<std::thread> connections_;
  std::thread acceptor_;
};

std::string answer(int status, std::string_view body, std::string_view headers = "");

}  // namespace moorage::link_test
