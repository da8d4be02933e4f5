// SHA-256, from OpenSSL's libcrypto. For telling apart requests under one idempotency key.
#pragma once

#include <string>
#include <string_view>

namespace moorage::base {

std::string sha256_hex(std::string_view bytes);

}  // namespace moorage::base
