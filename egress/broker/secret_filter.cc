#include "egress/broker/secret_filter.h"

#include <algorithm>
#include <utility>

namespace moorage::egress {
namespace {

std::vector<size_t> borders(const std::string& text) {
  std::vector<size_t> border(text.size(), 0);
  for (size_t i = 1, k = 0; i < text.size(); ++i) {
    while (k > 0 && text[i] != text[k]) k = border[k - 1];
    if (text[i] == text[k]) ++k;
    border[i] = k;
  }
  return border;
}

}  // namespace

SecretFilter::SecretFilter(const std::vector<std::string>& secrets) {
  for (const std::string& secret : secrets) {
    if (secret.size() >= kLeast) patterns_.push_back({secret, borders(secret), 0});
  }
}

std::string SecretFilter::pass(std::string_view bytes) {
  if (found_) return {};
  if (patterns_.empty()) return std::string(bytes);
  held_ += bytes;
  size_t longest = 0;
  for (Pattern& pattern : patterns_) {
    size_t& matched = pattern.matched;
    for (const char byte : bytes) {
      while (matched > 0 && byte != pattern.text[matched]) matched = pattern.fallback[matched - 1];
      if (byte == pattern.text[matched]) ++matched;
      if (matched == pattern.text.size()) {
        found_ = true;
        held_.clear();
        return {};
      }
    }
    longest = std::max(longest, matched);
  }
  std::string free = held_.substr(0, held_.size() - longest);
  held_.erase(0, free.size());
  return free;
}

std::string SecretFilter::rest() {
  for (Pattern& pattern : patterns_) pattern.matched = 0;
  return std::exchange(held_, {});
}

}  // namespace moorage::egress
