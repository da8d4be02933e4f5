#include "egress/ssh/git_advertisement.h"

#include <algorithm>
#include <charconv>

namespace moorage::egress {

size_t GitAdvertisement::take(std::string_view bytes) {
  size_t at = 0;
  while (at < bytes.size() && !over_ && !broken_) {
    if (left_ == 0) {
      digits_ += bytes[at++];
      if (digits_.size() == kLength) begin_packet();
      continue;
    }
    const size_t size = std::min(left_, bytes.size() - at);
    if (!has_first_)
      first_ += bytes.substr(at, std::min(size, kMostKept - std::min(first_.size(), kMostKept)));
    at += size;
    left_ -= size;
    has_first_ = has_first_ || left_ == 0;
  }
  return at;
}

void GitAdvertisement::begin_packet() {
  size_t size = 0;
  const auto [end, error] = std::from_chars(digits_.data(), digits_.data() + kLength, size, 16);
  const bool is_number = error == std::errc() && end == digits_.data() + kLength;
  digits_.clear();
  if (is_number && size == 0)
    over_ = true;
  else if (!is_number || size <= kLength)
    broken_ = true;
  else
    left_ = size - kLength;
}

std::string GitAdvertisement::error() const {
  constexpr std::string_view kError = "ERR ";
  return first_.starts_with(kError) ? first_.substr(kError.size()) : "";
}

}  // namespace moorage::egress
