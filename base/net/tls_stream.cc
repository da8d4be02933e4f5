#include "base/net/tls_stream.h"

#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509_vfy.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/error.h"
#include "base/net/ip_address.h"

namespace moorage::base {
namespace {

std::string reason_of_error() {
  const unsigned long code = ERR_peek_last_error();
  const char* reason = code == 0 ? nullptr : ERR_reason_error_string(code);
  return reason == nullptr ? "the TLS connection broke" : reason;
}

}  // namespace

void TlsStream::Free::operator()(ssl_st* ssl) const { SSL_free(ssl); }

TlsStream::TlsStream(const Fd& socket, ssl_ctx_st* context) : ssl_(SSL_new(context)) {
  if (!ssl_ || SSL_set_fd(ssl_.get(), socket.get()) != 1)
    throw Error(Code::resource_exhausted, "no memory for a TLS connection");
}

TlsStream TlsStream::accepting(const Fd& socket, ssl_ctx_st* context) {
  TlsStream made(socket, context);
  SSL_set_accept_state(made.ssl_.get());
  return made;
}

TlsStream TlsStream::connecting(const Fd& socket, ssl_ctx_st* context, const std::string& host,
                                const std::string& protocol) {
  TlsStream made(socket, context);
  SSL* ssl = made.ssl_.get();
  SSL_set_connect_state(ssl);
  // RFC 6066: the server's name is never an address.
  const bool named = parse_address(host)
                         ? X509_VERIFY_PARAM_set1_ip_asc(SSL_get0_param(ssl), host.c_str()) == 1
                         : SSL_set_tlsext_host_name(ssl, host.c_str()) == 1 &&
                               SSL_set1_host(ssl, host.c_str()) == 1;
  if (!named) throw Error(Code::resource_exhausted, "no memory for a TLS connection");
  const std::string name = protocol.empty() ? "http/1.1" : protocol;
  const std::string offer = static_cast<char>(name.size()) + name;  // RFC 7301
  SSL_set_alpn_protos(ssl, reinterpret_cast<const unsigned char*>(offer.data()),
                      static_cast<unsigned>(offer.size()));
  return made;
}

TlsStream TlsStream::plain(const Fd& socket) {
  TlsStream made;
  made.plain_ = socket.get();
  return made;
}

TlsStream::Result TlsStream::judge_plain(ssize_t size, uint32_t wants) {
  if (size > 0) return Result::done;
  if (size == 0) return Result::ended;
  wants_ = wants;
  if (errno == EAGAIN || errno == EINTR) return Result::again;
  error_ = std::strerror(errno);
  return Result::broken;
}

TlsStream::Result TlsStream::judge(int result) {
  const int error = SSL_get_error(ssl_.get(), result);
  wants_ = error == SSL_ERROR_WANT_READ ? EPOLLIN : EPOLLOUT;
  if (error == SSL_ERROR_WANT_READ || error == SSL_ERROR_WANT_WRITE) return Result::again;
  if (error == SSL_ERROR_ZERO_RETURN) return Result::ended;
  const long verified = SSL_get_verify_result(ssl_.get());
  if (verified != X509_V_OK)
    error_ = X509_verify_cert_error_string(verified);
  else
    error_ = error == SSL_ERROR_SYSCALL && errno != 0 ? std::strerror(errno) : reason_of_error();
  ERR_clear_error();
  return Result::broken;
}

TlsStream::Result TlsStream::handshake() {
  ERR_clear_error();
  errno = 0;
  const int result = SSL_do_handshake(ssl_.get());
  return result == 1 ? Result::done : judge(result);
}

TlsStream::Result TlsStream::read(std::span<char> buffer, size_t& size) {
  if (plain_ >= 0) {
    const ssize_t got = recv(plain_, buffer.data(), buffer.size(), MSG_DONTWAIT);
    size = static_cast<size_t>(std::max<ssize_t>(got, 0));
    return judge_plain(got, EPOLLIN);
  }
  for (size = 0; size < buffer.size();) {
    ERR_clear_error();
    errno = 0;
    const auto room = static_cast<int>(buffer.size() - size);
    const int got = SSL_read(ssl_.get(), buffer.data() + size, room);
    if (got <= 0) return judge(got);
    size += static_cast<size_t>(got);
  }
  return Result::done;
}

TlsStream::Result TlsStream::write(std::string& bytes) {
  if (plain_ >= 0) {
    const ssize_t size = send(plain_, bytes.data(), bytes.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
    bytes.erase(0, static_cast<size_t>(std::max<ssize_t>(size, 0)));
    return judge_plain(size, EPOLLOUT);
  }
  size_t written = 0;
  Result result = Result::done;
  while (written < bytes.size() && result == Result::done) {
    ERR_clear_error();
    errno = 0;
    const int size = SSL_write(ssl_.get(), bytes.data() + written,
                               static_cast<int>(std::min<size_t>(bytes.size() - written, 1 << 20)));
    if (size <= 0) result = judge(size);
    written += static_cast<size_t>(std::max(size, 0));
  }
  bytes.erase(0, written);
  return result;
}

void TlsStream::close() {
  if (ssl_ && SSL_is_init_finished(ssl_.get())) SSL_shutdown(ssl_.get());
  ERR_clear_error();
}

bool TlsStream::distrusts() const { return ssl_ && SSL_get_verify_result(ssl_.get()) != X509_V_OK; }

std::string TlsStream::protocol() const {
  const unsigned char* name = nullptr;
  unsigned size = 0;
  SSL_get0_alpn_selected(ssl_.get(), &name, &size);
  return {reinterpret_cast<const char*>(name), size};
}

}  // namespace moorage::base
