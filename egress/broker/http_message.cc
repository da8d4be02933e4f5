#include "egress/broker/http_message.h"

#include <algorithm>

namespace moorage::egress {

bool same_name(std::string_view one, std::string_view other) {
  const auto lower = [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; };
  return std::ranges::equal(one, other, {}, lower, lower);
}

}  // namespace moorage::egress
