#include "egress/broker/secret_filter.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "egress/broker/secret_forms.h"

namespace moorage::egress {

SecretFilter::SecretFilter(const std::vector<std::string>& secrets) {
  for (const std::string& secret : secrets) {
    if (secret.size() < kLeast) continue;
    for (std::string& form : secret_forms(secret)) forms_.push_back(std::move(form));
  }
  if (forms_.empty()) return;
  const auto size = [](const std::string& form) { return form.size(); };
  shortest_ = std::ranges::min(forms_, {}, size).size();
  longest_ = std::ranges::max(forms_, {}, size).size();
  farthest_ = std::min<size_t>(shortest_ - kBlock + 1, UINT8_MAX);
  skip_.assign(kSlots, static_cast<uint8_t>(farthest_));
  for (const std::string& form : forms_) {
    for (size_t at = 0; at + kBlock <= shortest_; ++at) {
      uint8_t& skip = skip_[slot(form.data() + at)];
      skip = static_cast<uint8_t>(std::min<size_t>(skip, shortest_ - kBlock - at));
    }
  }
}

size_t SecretFilter::slot(const char* block) {
  uint32_t bytes = 0;
  static_assert(sizeof bytes == kBlock);
  std::memcpy(&bytes, block, kBlock);
  // Multiplicative hashing: Knuth, "The Art of Computer Programming", volume 3, 6.4.
  return (bytes * 2654435761U) >> (32 - kSlotBits);
}

// Most bytes belong to no form: several steps at once, none of which waits for the one before.
size_t SecretFilter::skip_most(std::string_view text, size_t end) const {
  const size_t far = farthest_;
  for (; end + 3 * far <= text.size(); end += 4 * far) {
    const char* block = text.data() + end - kBlock;
    const size_t steps = size_t{skip_[slot(block)]} + skip_[slot(block + far)] +
                         skip_[slot(block + 2 * far)] + skip_[slot(block + 3 * far)];
    if (steps != 4 * far) break;
  }
  return end;
}

bool SecretFilter::contains(std::string_view text) const {
  if (forms_.empty() || text.size() < shortest_) return false;
  // `end` is behind the first `shortest_` bytes of what may be a form.
  for (size_t end = shortest_; end <= text.size();) {
    const uint8_t skip = skip_[slot(text.data() + end - kBlock)];
    if (skip > 0) {
      end += skip;
      if (skip == farthest_) end = skip_most(text, end);
      continue;
    }
    const std::string_view here = text.substr(end - shortest_);
    for (const std::string& form : forms_) {
      if (here.starts_with(form)) return true;
    }
    ++end;
  }
  return false;
}

// How many bytes at its end may be the beginning of a secret.
size_t SecretFilter::held_in(std::string_view window) const {
  size_t most = 0;
  for (const std::string& form : forms_) {
    for (size_t size = std::min(form.size() - 1, window.size()); size >= kLeastHeld && size > most;
         --size) {
      if (form[size - 1] == window.back() &&
          window.ends_with(std::string_view(form).substr(0, size)))
        most = size;
    }
  }
  return most;
}

std::string SecretFilter::pass(std::string bytes) {
  if (found_) return {};
  if (forms_.empty() || bytes.empty()) return bytes;
  const size_t most = longest_ - 1;
  // A form begins in the bytes before, or in these, which are not copied for it.
  if (contains(tail_ + bytes.substr(0, most)) || contains(bytes)) {
    found_ = true;
    held_ = 0;
    tail_.clear();
    return {};
  }
  std::string held = tail_.substr(tail_.size() - held_);
  tail_ += std::string_view(bytes).substr(bytes.size() - std::min(bytes.size(), most));
  if (tail_.size() > most) tail_.erase(0, tail_.size() - most);
  // Its first bytes may have passed before it was long enough to be held.
  held_ = std::min(held_in(tail_), held.size() + bytes.size());
  if (!held.empty()) bytes.insert(0, held);
  bytes.resize(bytes.size() - held_);
  return bytes;
}

std::string SecretFilter::rest() {
  std::string last = tail_.substr(tail_.size() - held_);
  tail_.clear();
  held_ = 0;
  return last;
}

}  // namespace moorage::egress
