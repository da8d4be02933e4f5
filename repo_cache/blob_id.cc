#include "repo_cache/blob_id.h"

#include <openssl/evp.h>

#include <algorithm>
#include <memory>
#include <string>

#include "base/error.h"
#include "base/os/fd.h"

namespace moorage::repo_cache {
namespace {

constexpr uint64_t kPieceBytes = 256 << 10;

void require(int result) {
  if (result == 1) return;
  throw Error(Code::unsupported, "this host's OpenSSL has no SHA-1, which git needs");
}

}  // namespace

std::optional<git_oid> blob_id(int fd, uint64_t size, TimeLimit deadline) {
  const std::unique_ptr<EVP_MD_CTX, decltype(&EVP_MD_CTX_free)> hash(EVP_MD_CTX_new(),
                                                                     EVP_MD_CTX_free);
  require(EVP_DigestInit_ex(hash.get(), EVP_sha1(), nullptr));
  const std::string header = "blob " + std::to_string(size);
  require(EVP_DigestUpdate(hash.get(), header.c_str(), header.size() + 1));
  for (uint64_t at = 0; at < size;) {
    if (std::chrono::steady_clock::now() > deadline) return std::nullopt;
    const std::string piece = base::read_at(fd, std::min(kPieceBytes, size - at), at);
    if (piece.empty()) return std::nullopt;
    require(EVP_DigestUpdate(hash.get(), piece.data(), piece.size()));
    at += piece.size();
  }
  git_oid oid;
  static_assert(sizeof oid.id == 20);
  require(EVP_DigestFinal_ex(hash.get(), oid.id, nullptr));
  return oid;
}

}  // namespace moorage::repo_cache
