// Blocking TLS ends for tests.
#pragma once

#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <sys/socket.h>

#include <string>

#include "base/net/certificates.h"

namespace moorage::egress_test {

class Tls {
 public:
  // A client, if `ca` is given, or a server.
  // `protocol`: the only one that it offers by ALPN.
  static Tls client(int socket, const std::string& ca, const std::string& host,
                    const std::string& protocol = "") {
    Tls made(socket, TLS_client_method());
    if (!protocol.empty()) {
      const std::string offer = static_cast<char>(protocol.size()) + protocol;
      SSL_CTX_set_alpn_protos(made.context_, reinterpret_cast<const unsigned char*>(offer.data()),
                              static_cast<unsigned>(offer.size()));
    }
    BIO* bio = BIO_new_mem_buf(ca.data(), static_cast<int>(ca.size()));
    X509* authority = PEM_read_bio_X509(bio, nullptr, nullptr, nullptr);
    X509_STORE_add_cert(SSL_CTX_get_cert_store(made.context_), authority);
    X509_free(authority);
    BIO_free(bio);
    SSL_CTX_set_verify(made.context_, SSL_VERIFY_PEER, nullptr);
    made.begin();
    SSL_set_tlsext_host_name(made.ssl_, host.c_str());
    SSL_set1_host(made.ssl_, host.c_str());
    made.done_ = SSL_connect(made.ssl_) == 1;
    return made;
  }
  // `refuses`: it knows none of the protocols that the client offers.
  static Tls server(int socket, const base::IssuedCertificate& own, bool refuses = false) {
    Tls made(socket, TLS_server_method());
    if (refuses) {
      const auto none = [](SSL*, const unsigned char**, unsigned char*, const unsigned char*,
                           unsigned, void*) { return SSL_TLSEXT_ERR_ALERT_FATAL; };
      SSL_CTX_set_alpn_select_cb(made.context_, none, nullptr);
    }
    BIO* bio = BIO_new_mem_buf(own.certificate.data(), static_cast<int>(own.certificate.size()));
    X509* certificate = PEM_read_bio_X509(bio, nullptr, nullptr, nullptr);
    BIO_free(bio);
    bio = BIO_new_mem_buf(own.key.data(), static_cast<int>(own.key.size()));
    EVP_PKEY* key = PEM_read_bio_PrivateKey(bio, nullptr, nullptr, nullptr);
    BIO_free(bio);
    SSL_CTX_use_certificate(made.context_, certificate);
    SSL_CTX_use_PrivateKey(made.context_, key);
    X509_free(certificate);
    EVP_PKEY_free(key);
    made.begin();
    made.done_ = SSL_accept(made.ssl_) == 1;
    return made;
  }
  Tls(Tls&& other) noexcept
      : socket_(other.socket_), context_(other.context_), ssl_(other.ssl_), done_(other.done_) {
    other.context_ = nullptr;
    other.ssl_ = nullptr;
  }
  ~Tls() {
    if (ssl_ != nullptr && done_) SSL_shutdown(ssl_);
    SSL_free(ssl_);
    SSL_CTX_free(context_);
  }

  bool shook_hands() const { return done_; }
  bool send(const std::string& bytes) {
    return SSL_write(ssl_, bytes.data(), static_cast<int>(bytes.size())) ==
           static_cast<int>(bytes.size());
  }
  std::string some() {
    std::string bytes(64 << 10, '\0');
    const int size = SSL_read(ssl_, bytes.data(), static_cast<int>(bytes.size()));
    bytes.resize(size > 0 ? static_cast<size_t>(size) : 0);
    return bytes;
  }
  std::string until(const std::string& mark) {
    std::string all;
    for (std::string piece = "x"; !piece.empty() && all.find(mark) == std::string::npos;)
      all += piece = some();
    return all;
  }
  std::string all() { return until(std::string("\0never\0", 7)); }

 private:
  Tls(int socket, const SSL_METHOD* method) : socket_(socket), context_(SSL_CTX_new(method)) {}
  void begin() {
    ssl_ = SSL_new(context_);
    SSL_set_fd(ssl_, socket_);
  }
  int socket_;
  SSL_CTX* context_;
  SSL* ssl_ = nullptr;
  bool done_ = false;
};

}  // namespace moorage::egress_test
