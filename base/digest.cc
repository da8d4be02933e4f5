#include "base/digest.h"

#include <openssl/evp.h>
#include <sys/random.h>

#include "base/error.h"

namespace moorage::base {
namespace {

constexpr size_t kBytes = 32;
constexpr size_t kBytesSha1 = 20;

void require(int answer) {
  if (answer == 1) return;
  throw Error(Code::internal, "a digest is not available in this build of OpenSSL");
}

EVP_MD_CTX* as_context(void* context) { return static_cast<EVP_MD_CTX*>(context); }

}  // namespace

std::string to_hex(std::string_view bytes) {
  static constexpr char kHex[] = "0123456789abcdef";
  std::string text;
  for (const char c : bytes) {
    const auto byte = static_cast<unsigned char>(c);
    text += kHex[byte >> 4];
    text += kHex[byte & 15];
  }
  return text;
}

std::string random_hex(size_t bytes) {
  std::string random(bytes, '\0');
  check(getrandom(random.data(), random.size(), 0), "get a random number");
  return to_hex(random);
}

std::string sha256_hex(std::string_view bytes) {
  Sha256 digest;
  digest.add(bytes);
  return to_hex(digest.raw());
}

std::string sha1_hex(std::string_view bytes) {
  std::string digest(kBytesSha1, '\0');
  require(EVP_Digest(bytes.data(), bytes.size(), reinterpret_cast<unsigned char*>(digest.data()),
                     nullptr, EVP_sha1(), nullptr));
  return to_hex(digest);
}

void Sha256::Free::operator()(void* context) const { EVP_MD_CTX_free(as_context(context)); }

Sha256::Sha256() : context_(EVP_MD_CTX_new()) { restart(); }

void Sha256::restart() {
  require(EVP_DigestInit_ex(as_context(context_.get()), EVP_sha256(), nullptr));
}

void Sha256::add(std::string_view bytes) {
  require(EVP_DigestUpdate(as_context(context_.get()), bytes.data(), bytes.size()));
}

std::string Sha256::raw() const {
  const std::unique_ptr<void, Free> copy(EVP_MD_CTX_new());
  require(EVP_MD_CTX_copy_ex(as_context(copy.get()), as_context(context_.get())));
  std::string digest(kBytes, '\0');
  require(EVP_DigestFinal_ex(as_context(copy.get()),
                             reinterpret_cast<unsigned char*>(digest.data()), nullptr));
  return digest;
}

}  // namespace moorage::base
