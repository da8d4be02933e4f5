// SHA-256, from OpenSSL's libcrypto. For telling apart requests under one idempotency key, and
// trees that were left from trees that are found.
#pragma once

#include <memory>
#include <string>
#include <string_view>

namespace moorage::base {

std::string sha256_hex(std::string_view bytes);

// The same of bytes that come in pieces.
class Sha256 {
 public:
  Sha256();
  ~Sha256();
  Sha256(const Sha256&) = delete;
  Sha256& operator=(const Sha256&) = delete;

  void add(std::string_view bytes);
  std::string finish_hex();  // once

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace moorage::base
