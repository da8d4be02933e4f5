#include "egress/client_hello.h"

#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/ssl.h>

#include "base/error.h"

namespace moorage::egress {
namespace {

constexpr std::string_view kUnrecognizedName("\x15\x03\x03\x00\x02\x02\x70", 7);

// The content of the extension: the size of the list, then type 0, size and text of the one name.
std::optional<std::string> name_in(std::string_view extension) {
  const auto number = [extension](size_t at) {
    return static_cast<size_t>(static_cast<unsigned char>(extension[at])) << 8 |
           static_cast<unsigned char>(extension[at + 1]);
  };
  if (extension.size() < 5 || number(0) != extension.size() - 2 || extension[2] != 0 ||
      number(3) != extension.size() - 5) {
    return std::nullopt;
  }
  return std::string(extension.substr(5));
}

int on_hello(SSL* ssl, int*, void*) {
  auto& name = *static_cast<std::optional<std::string>*>(SSL_get_app_data(ssl));
  const unsigned char* data = nullptr;
  size_t size = 0;
  if (SSL_client_hello_get0_ext(ssl, TLSEXT_TYPE_server_name, &data, &size) == 1)
    name = name_in({reinterpret_cast<const char*>(data), size});
  return SSL_CLIENT_HELLO_RETRY;  // ends SSL_accept; nothing was answered
}

SSL_CTX* context() {
  static SSL_CTX* const made = [] {
    SSL_CTX* ctx = SSL_CTX_new(TLS_server_method());
    if (ctx == nullptr) throw Error(Code::internal, "OpenSSL cannot make a TLS context");
    SSL_CTX_set_client_hello_cb(ctx, on_hello, nullptr);
    return ctx;
  }();
  return made;
}

SSL* as_ssl(void* ssl) { return static_cast<SSL*>(ssl); }

}  // namespace

void ClientHello::Free::operator()(void* ssl) const { SSL_free(as_ssl(ssl)); }

ClientHello::ClientHello() : ssl_(SSL_new(context())) {
  BIO* in = BIO_new(BIO_s_mem());
  BIO* out = BIO_new(BIO_s_null());
  if (!ssl_ || in == nullptr || out == nullptr) {
    BIO_free(in);
    BIO_free(out);
    throw Error(Code::resource_exhausted, "no memory to read a TLS hello");
  }
  BIO_set_mem_eof_return(in, -1);  // an empty one is "more will come"
  SSL_set_bio(as_ssl(ssl_.get()), in, out);
  SSL_set_accept_state(as_ssl(ssl_.get()));
}

ClientHello::State ClientHello::add(std::string_view bytes) {
  if (state_ != State::incomplete) return state_;
  size_ += bytes.size();
  if (size_ > kMaxBytes) return state_ = State::invalid;
  SSL* ssl = as_ssl(ssl_.get());
  SSL_set_app_data(ssl, &server_name_);
  BIO_write(SSL_get_rbio(ssl), bytes.data(), static_cast<int>(bytes.size()));
  const int result = SSL_do_handshake(ssl);
  const int error = SSL_get_error(ssl, result);
  ERR_clear_error();
  if (error == SSL_ERROR_WANT_CLIENT_HELLO_CB) return state_ = State::complete;
  if (error != SSL_ERROR_WANT_READ) state_ = State::invalid;
  return state_;
}

std::string_view unrecognized_name_alert() { return kUnrecognizedName; }

}  // namespace moorage::egress
