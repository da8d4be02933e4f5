// What TLS clients send first.
#pragma once

#include <openssl/bio.h>
#include <openssl/ssl.h>

#include <string>

namespace moorage::egress_test {

struct HelloOptions {
  std::string name;
  int newest = TLS1_3_VERSION;
  size_t fragment = 16384;  // bytes of a TLS record
};

// What OpenSSL's own client sends first.
inline std::string hello(const HelloOptions& options) {
  SSL_CTX* context = SSL_CTX_new(TLS_client_method());
  SSL_CTX_set_max_proto_version(context, options.newest);
  SSL_CTX_set_min_proto_version(context, TLS1_2_VERSION);
  SSL_CTX_set_max_send_fragment(context, options.fragment);
  SSL* ssl = SSL_new(context);
  BIO* out = BIO_new(BIO_s_mem());
  SSL_set_bio(ssl, BIO_new(BIO_s_mem()), out);
  SSL_set_connect_state(ssl);
  if (!options.name.empty()) SSL_set_tlsext_host_name(ssl, options.name.c_str());
  SSL_do_handshake(ssl);
  char* data = nullptr;
  const long size = BIO_get_mem_data(out, &data);
  std::string bytes(data, static_cast<size_t>(size));
  SSL_free(ssl);
  SSL_CTX_free(context);
  return bytes;
}

}  // namespace moorage::egress_test
