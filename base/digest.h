// SHA-256, from OpenSSL's libcrypto: telling apart requests under one idempotency key, trees that
// were left from trees that are found, what a file holds, and an archive from one with a flipped
// bit.
#pragma once

#include <memory>
#include <string>
#include <string_view>

namespace moorage::base {

std::string sha256_hex(std::string_view bytes);
std::string to_hex(std::string_view bytes);

// Of what comes piece by piece.
class Sha256 {
 public:
  Sha256();
  void add(std::string_view bytes);
  std::string raw() const;  // 32 bytes, of what was added so far; more can follow
  void restart();

 private:
  struct Free {
    void operator()(void* context) const;
  };
  std::unique_ptr<void, Free> context_;
};

}  // namespace moorage::base
