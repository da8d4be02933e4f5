// One side of a connection whose TLS ends here, over a non-blocking socket. The base layer does not
// link libssl: a program that uses this links it itself.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "base/os/fd.h"

struct ssl_st;
struct ssl_ctx_st;

namespace moorage::base {

class TlsStream {
 public:
  enum class Result {
    done,
    again,   // once the socket is ready for wants()
    ended,   // the other side said that nothing more will come
    broken,  // see error()
  };
  // The socket must outlive it. `host`: whose certificate is expected; an address is compared with
  // the addresses in the certificate. `protocol`: to offer by ALPN; empty: HTTP/1.1.
  static TlsStream accepting(const Fd& socket, ssl_ctx_st* context);
  static TlsStream connecting(const Fd& socket, ssl_ctx_st* context, const std::string& host,
                              const std::string& protocol);
  // Without TLS, for a socket of this host; it needs no handshake.
  static TlsStream plain(const Fd& socket);
  TlsStream() = default;
  TlsStream(TlsStream&&) = default;
  TlsStream& operator=(TlsStream&&) = default;

  explicit operator bool() const { return ssl_ != nullptr || plain_ >= 0; }
  Result handshake();
  // Fills the buffer from its beginning; done: there may be more.
  Result read(std::span<char> buffer, size_t& size);
  // Removes from `bytes` what was written; done: all of it.
  Result write(std::string& bytes);
  void close();  // sends that nothing more will come, if the socket takes it

  uint32_t wants() const { return wants_; }  // EPOLLIN or EPOLLOUT, after `again`
  const std::string& error() const { return error_; }
  bool distrusts() const;        // after `broken`: the other side's certificate is why
  std::string protocol() const;  // that ALPN chose; empty: none

 private:
  struct Free {
    void operator()(ssl_st* ssl) const;
  };
  TlsStream(const Fd& socket, ssl_ctx_st* context);
  Result judge(int result);
  Result judge_plain(ssize_t size, uint32_t wants);

  std::unique_ptr<ssl_st, Free> ssl_;
  int plain_ = -1;
  uint32_t wants_ = 0;
  std::string error_;
};

}  // namespace moorage::base
