// SHA-256 (and SHA-1), from OpenSSL's libcrypto: compares requests under one idempotency key, trees
// before and after, file contents, and detects a flipped bit in an archive.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

namespace moorage::base {

std::string sha256_hex(std::string_view bytes);
std::string sha1_hex(std::string_view bytes);  // only for names that git gave
std::string to_hex(std::string_view bytes);
std::string random_hex(size_t bytes);  // two digits a byte, from the kernel

// For input that comes piece by piece.
class Sha256 {
 public:
  Sha256();
  void add(std::string_view bytes);
  std::string raw() const;  // 32 bytes, of the input so far; more can follow
  void restart();

 private:
  struct Free {
    void operator()(void* context) const;
  };
  std::unique_ptr<void, Free> context_;
};

}  // namespace moorage::base
