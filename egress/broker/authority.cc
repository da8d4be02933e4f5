#include "egress/broker/authority.h"

#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>

#include <algorithm>

#include "base/error.h"

namespace moorage::egress {
namespace {

constexpr size_t kReadAhead = 64 << 10;  // bytes of each side of a connection that reads
constexpr int64_t kLeafDays = 30;        // an egress ends with its sandbox, but a sandbox may last
// ALPN's list of lengths and names, the preferred one first: HTTP/2 is for programs that need it.
constexpr unsigned char kProtocols[] = "\x08http/1.1\x02h2";

struct FreeBio {
  void operator()(BIO* bio) const { BIO_free_all(bio); }
};
using Bio = std::unique_ptr<BIO, FreeBio>;

Bio reader(std::string_view pem) {
  Bio bio(BIO_new_mem_buf(pem.data(), static_cast<int>(pem.size())));
  if (!bio) throw Error(Code::resource_exhausted, "no memory to read a certificate");
  return bio;
}

X509* next_certificate(const Bio& bio) {
  X509* certificate = PEM_read_bio_X509(bio.get(), nullptr, nullptr, nullptr);
  ERR_clear_error();
  return certificate;
}

TlsContext context_of(const SSL_METHOD* method) {
  TlsContext context(SSL_CTX_new(method));
  if (!context) throw Error(Code::resource_exhausted, "no memory for a TLS context");
  SSL_CTX_set_min_proto_version(context.get(), TLS1_2_VERSION);
  SSL_CTX_set_mode(context.get(), SSL_MODE_ENABLE_PARTIAL_WRITE |
                                      SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER |
                                      SSL_MODE_RELEASE_BUFFERS);
  // Else each record takes two calls of read(2).
  SSL_CTX_set_read_ahead(context.get(), 1);
  SSL_CTX_set_default_read_buffer_len(context.get(), kReadAhead);
  return context;
}

int choose_protocol(SSL*, const unsigned char** out, unsigned char* out_size,
                    const unsigned char* offered, unsigned size, void*) {
  unsigned char* chosen = nullptr;
  if (SSL_select_next_proto(&chosen, out_size, kProtocols, sizeof kProtocols - 1, offered, size) !=
      OPENSSL_NPN_NEGOTIATED) {
    return SSL_TLSEXT_ERR_ALERT_FATAL;
  }
  *out = chosen;
  return SSL_TLSEXT_ERR_OK;
}

}  // namespace

void FreeTlsContext::operator()(ssl_ctx_st* context) const { SSL_CTX_free(context); }

ssl_ctx_st* Authority::server_context(const std::string& host) {
  TlsContext& kept = contexts_[host];
  if (kept) return kept.get();
  TlsContext made = context_of(TLS_server_method());
  const base::IssuedCertificate leaf =
      issuer_.issue({.name = host, .hosts = {host}, .days = kLeafDays});
  const std::string chain_text = leaf.certificate + issuer_.certificate();
  const Bio certificates = reader(chain_text);
  const Bio keys = reader(leaf.key);
  X509* certificate = next_certificate(certificates);
  X509* chain = next_certificate(certificates);
  EVP_PKEY* key = PEM_read_bio_PrivateKey(keys.get(), nullptr, nullptr, nullptr);
  // The context keeps a reference of its own to the first and the last, and takes the chain.
  const bool done = certificate != nullptr && chain != nullptr && key != nullptr &&
                    SSL_CTX_use_certificate(made.get(), certificate) == 1 &&
                    SSL_CTX_use_PrivateKey(made.get(), key) == 1 &&
                    SSL_CTX_add_extra_chain_cert(made.get(), chain) == 1;
  X509_free(certificate);
  EVP_PKEY_free(key);
  if (!done) throw Error(Code::internal, "OpenSSL cannot use a certificate for " + host);
  SSL_CTX_set_alpn_select_cb(made.get(), choose_protocol, nullptr);
  kept = std::move(made);
  return kept.get();
}

TlsContext client_context(std::string_view pem) {
  TlsContext context = context_of(TLS_client_method());
  X509_STORE* store = SSL_CTX_get_cert_store(context.get());
  const Bio bio = reader(pem);
  bool any = false;
  while (X509* certificate = next_certificate(bio)) {
    any = X509_STORE_add_cert(store, certificate) == 1 || any;
    X509_free(certificate);
  }
  if (!any) throw Error(Code::invalid_argument, "no certificate of an authority was found");
  SSL_CTX_set_verify(context.get(), SSL_VERIFY_PEER, nullptr);
  return context;
}

}  // namespace moorage::egress
