// X.509 certificates for hosts whose TLS ends at Moorage: an authority of the store, an
// intermediate one for each sandbox, and leaves. P-256 keys; everything is PEM.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

struct evp_pkey_st;
struct x509_st;

namespace moorage::base {

struct CertificateOptions {
  std::string name;        // the common name, shown to people
  bool authority = false;  // may sign others
  int path_length = 0;     // of an authority: how many authorities may follow
  // Of a leaf (one without any is for encryption, not for a host), or all that an authority may
  // sign for.
  std::vector<std::string> hosts = {};
  int64_t days = 1;  // it is valid from yesterday on
};

// Decrypts a secret (CMS, DER) from standard input to standard output, with the key in that file.
std::vector<std::string> unseal_command(const std::string& key_file);

struct IssuedCertificate {
  std::string certificate;
  std::string key;
};

class Issuer {
 public:
  // An authority of its own.
  static IssuedCertificate self_signed(const CertificateOptions& options);
  // PEM: its certificate and its key, in this order. Throws invalid_argument.
  explicit Issuer(std::string_view pem);
  ~Issuer();
  Issuer(const Issuer&) = delete;
  Issuer& operator=(const Issuer&) = delete;

  IssuedCertificate issue(const CertificateOptions& options) const;
  const std::string& certificate() const { return pem_; }  // without the key

 private:
  struct Free {
    void operator()(evp_pkey_st* key) const;
    void operator()(x509_st* certificate) const;
  };
  std::unique_ptr<x509_st, Free> certificate_;
  std::unique_ptr<evp_pkey_st, Free> key_;
  std::string pem_;
};

}  // namespace moorage::base
