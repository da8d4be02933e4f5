#include "base/net/java_store.h"

#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/sha.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "base/error.h"

namespace moorage::base {
namespace {

constexpr uint32_t kMagic = 0xFEEDFEED;
constexpr uint32_t kVersion = 2;
constexpr uint32_t kTrusted = 2;  // the kind of an entry
constexpr std::string_view kPassword = "changeit";
constexpr std::string_view kWhitener = "Mighty Aphrodite";

void add_number(std::string& to, uint64_t number, int bytes) {
  for (int at = bytes - 1; at >= 0; --at) to += static_cast<char>(number >> (8 * at));
}

void add_text(std::string& to, std::string_view text) {
  add_number(to, text.size(), 2);
  to += text;
}

std::vector<std::string> decoded(std::string_view pem) {
  const std::unique_ptr<BIO, decltype(&BIO_free_all)> bio(
      BIO_new_mem_buf(pem.data(), static_cast<int>(pem.size())), BIO_free_all);
  std::vector<std::string> all;
  while (X509* raw = PEM_read_bio_X509(bio.get(), nullptr, nullptr, nullptr)) {
    const std::unique_ptr<X509, decltype(&X509_free)> certificate(raw, X509_free);
    std::string der(static_cast<size_t>(i2d_X509(raw, nullptr)), '\0');
    auto* to = reinterpret_cast<unsigned char*>(der.data());
    if (i2d_X509(raw, &to) <= 0) throw Error(Code::internal, "OpenSSL cannot write a certificate");
    all.push_back(std::move(der));
  }
  ERR_clear_error();  // that there are no more
  return all;
}

// Over the password, too, each of its characters in two bytes.
std::string digest_of(const std::string& store) {
  std::string bytes;
  for (const char c : kPassword) bytes += {'\0', c};
  bytes.append(kWhitener).append(store);
  std::string digest(SHA_DIGEST_LENGTH, '\0');
  SHA1(reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size(),
       reinterpret_cast<unsigned char*>(digest.data()));
  return digest;
}

}  // namespace

std::string java_store(std::string_view pem) {
  const std::vector<std::string> certificates = decoded(pem);
  std::string store;
  add_number(store, kMagic, 4);
  add_number(store, kVersion, 4);
  add_number(store, certificates.size(), 4);
  for (size_t n = 0; n < certificates.size(); ++n) {
    add_number(store, kTrusted, 4);
    add_text(store, "moorage-" + std::to_string(n));
    add_number(store, 0, 8);  // when it was added, in milliseconds
    add_text(store, "X.509");
    add_number(store, certificates[n].size(), 4);
    store += certificates[n];
  }
  return store + digest_of(store);
}

}  // namespace moorage::base
