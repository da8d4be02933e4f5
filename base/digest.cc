#include "base/digest.h"

#include <openssl/evp.h>

#include <array>

#include "base/error.h"

namespace moorage::base {
namespace {

using Digest = std::array<unsigned char, 32>;

void require(int result) {
  if (result != 1) {
    throw Error(Code::internal, "SHA-256 is not available in this build of OpenSSL");
  }
}

std::string hex(const Digest& digest) {
  static constexpr char kHex[] = "0123456789abcdef";
  std::string text;
  for (const unsigned char byte : digest) {
    text += kHex[byte >> 4];
    text += kHex[byte & 15];
  }
  return text;
}

}  // namespace

std::string sha256_hex(std::string_view bytes) {
  Digest digest{};
  unsigned int size = 0;
  require(EVP_Digest(bytes.data(), bytes.size(), digest.data(), &size, EVP_sha256(), nullptr));
  return hex(digest);
}

struct Sha256::State {
  EVP_MD_CTX* context = EVP_MD_CTX_new();
  ~State() { EVP_MD_CTX_free(context); }
};

Sha256::Sha256() : state_(std::make_unique<State>()) {
  require(EVP_DigestInit_ex(state_->context, EVP_sha256(), nullptr));
}

Sha256::~Sha256() = default;

void Sha256::add(std::string_view bytes) {
  require(EVP_DigestUpdate(state_->context, bytes.data(), bytes.size()));
}

std::string Sha256::finish_hex() {
  Digest digest{};
  unsigned int size = 0;
  require(EVP_DigestFinal_ex(state_->context, digest.data(), &size));
  return hex(digest);
}

}  // namespace moorage::base
