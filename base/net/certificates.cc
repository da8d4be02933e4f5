#include "base/net/certificates.h"

#include <openssl/bio.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/rand.h>
#include <openssl/x509v3.h>

#include "base/error.h"

namespace moorage::base {
namespace {

template <auto function>
struct Call {
  template <typename T>
  void operator()(T* thing) const {
    function(thing);
  }
};
using Bio = std::unique_ptr<BIO, Call<BIO_free_all>>;
using Key = std::unique_ptr<EVP_PKEY, Call<EVP_PKEY_free>>;
using Certificate = std::unique_ptr<X509, Call<X509_free>>;
using Number = std::unique_ptr<BIGNUM, Call<BN_free>>;

constexpr int kSerialBits = 127;
constexpr long kDayS = 86'400;

void require(bool done, const char* what) {
  if (!done) throw Error(Code::internal, std::string("OpenSSL cannot ") + what);
}

Bio reader(std::string_view pem) {
  return Bio(BIO_new_mem_buf(pem.data(), static_cast<int>(pem.size())));
}

std::string text_of(const Bio& bio) {
  char* data = nullptr;
  const long size = BIO_get_mem_data(bio.get(), &data);
  return {data, static_cast<size_t>(size)};
}

std::string pem_of(X509* certificate) {
  const Bio bio(BIO_new(BIO_s_mem()));
  require(bio && PEM_write_bio_X509(bio.get(), certificate) == 1, "write a certificate");
  return text_of(bio);
}

std::string pem_of(EVP_PKEY* key) {
  const Bio bio(BIO_new(BIO_s_secmem()));
  require(
      bio && PEM_write_bio_PrivateKey(bio.get(), key, nullptr, nullptr, 0, nullptr, nullptr) == 1,
      "write a key");
  return text_of(bio);
}

void set_serial(X509* certificate) {
  const Number number(BN_new());
  require(number && BN_rand(number.get(), kSerialBits, BN_RAND_TOP_ANY, BN_RAND_BOTTOM_ANY) == 1 &&
              BN_to_ASN1_INTEGER(number.get(), X509_get_serialNumber(certificate)) != nullptr,
          "make a serial number");
}

void add_extension(X509* certificate, X509* issuer, int kind, const std::string& value) {
  X509V3_CTX context;
  X509V3_set_ctx_nodb(&context);
  X509V3_set_ctx(&context, issuer, certificate, nullptr, nullptr, 0);
  const std::unique_ptr<X509_EXTENSION, Call<X509_EXTENSION_free>> extension(
      X509V3_EXT_conf_nid(nullptr, &context, kind, value.c_str()));
  require(extension && X509_add_ext(certificate, extension.get(), -1) == 1,
          "add an extension to a certificate");
}

std::string list_of(const std::vector<std::string>& hosts, const std::string& prefix) {
  std::string list;
  // A name in a constraint stands for all below it, too (RFC 5280, 4.2.1.10).
  for (const std::string& host : hosts)
    list += (list.empty() ? "" : ",") + prefix + host.substr(host.starts_with('.') ? 1 : 0);
  return list;
}

void add_extensions(X509* certificate, X509* issuer, const CertificateOptions& options) {
  const auto add = [&](int kind, const std::string& value) {
    add_extension(certificate, issuer, kind, value);
  };
  add(NID_subject_key_identifier, "hash");
  if (issuer != certificate) add(NID_authority_key_identifier, "keyid:always");
  if (options.authority) {
    add(NID_basic_constraints, "critical,CA:TRUE,pathlen:" + std::to_string(options.path_length));
    add(NID_key_usage, "critical,keyCertSign,cRLSign");
    if (!options.hosts.empty())
      add(NID_name_constraints, "critical," + list_of(options.hosts, "permitted;DNS:"));
  } else {
    add(NID_basic_constraints, "critical,CA:FALSE");
    if (options.hosts.empty()) return add(NID_key_usage, "critical,keyAgreement");
    add(NID_key_usage, "critical,digitalSignature");
    add(NID_ext_key_usage, "serverAuth");
    add(NID_subject_alt_name, list_of(options.hosts, "DNS:"));
  }
}

// Self-signed if there is no issuer.
IssuedCertificate make(const CertificateOptions& options, X509* issuer, EVP_PKEY* issuer_key) {
  const Key key(EVP_EC_gen("P-256"));
  const Certificate made(X509_new());
  require(key && made, "make a key");
  X509* certificate = made.get();
  require(X509_set_version(certificate, X509_VERSION_3) == 1, "make a certificate");
  set_serial(certificate);
  X509_NAME* name = X509_get_subject_name(certificate);
  // A common name has at most 64 characters (RFC 5280); nobody reads it to verify a host.
  const std::string common = options.name.substr(0, 64);
  require(X509_NAME_add_entry_by_txt(name, "O", MBSTRING_UTF8,
                                     reinterpret_cast<const unsigned char*>("Moorage"), -1, -1,
                                     0) == 1 &&
              X509_NAME_add_entry_by_txt(name, "CN", MBSTRING_UTF8,
                                         reinterpret_cast<const unsigned char*>(common.c_str()), -1,
                                         -1, 0) == 1,
          "name a certificate");
  X509* signer = issuer != nullptr ? issuer : certificate;
  require(X509_set_issuer_name(certificate, X509_get_subject_name(signer)) == 1 &&
              X509_gmtime_adj(X509_getm_notBefore(certificate), -kDayS) != nullptr &&
              X509_time_adj_ex(X509_getm_notAfter(certificate), static_cast<int>(options.days), 0,
                               nullptr) != nullptr &&
              X509_set_pubkey(certificate, key.get()) == 1,
          "fill a certificate");
  add_extensions(certificate, signer, options);
  require(X509_sign(certificate, issuer_key != nullptr ? issuer_key : key.get(), EVP_sha256()) > 0,
          "sign a certificate");
  return {pem_of(certificate), pem_of(key.get())};
}

}  // namespace

void Issuer::Free::operator()(evp_pkey_st* key) const { EVP_PKEY_free(key); }
void Issuer::Free::operator()(x509_st* certificate) const { X509_free(certificate); }

std::vector<std::string> unseal_command(const std::string& key_file) {
  return {"openssl", "cms", "-decrypt", "-binary", "-inform", "DER", "-recip", key_file};
}

IssuedCertificate Issuer::self_signed(const CertificateOptions& options) {
  return make(options, nullptr, nullptr);
}

Issuer::Issuer(std::string_view pem) {
  const Bio bio = reader(pem);
  require(bio != nullptr, "read a certificate");
  certificate_.reset(PEM_read_bio_X509(bio.get(), nullptr, nullptr, nullptr));
  key_.reset(PEM_read_bio_PrivateKey(bio.get(), nullptr, nullptr, nullptr));
  if (!certificate_ || !key_ || X509_check_private_key(certificate_.get(), key_.get()) != 1)
    throw Error(Code::invalid_argument, "not a certificate with its key");
  pem_ = pem_of(certificate_.get());
}

Issuer::~Issuer() = default;

IssuedCertificate Issuer::issue(const CertificateOptions& options) const {
  return make(options, certificate_.get(), key_.get());
}

}  // namespace moorage::base
