// Finds secrets, in all forms of secret_forms.h, in bytes that pass by. Bytes that look like the
// beginning of one are held until the next ones come.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace moorage::egress {

class SecretFilter {
 public:
  SecretFilter() = default;
  // Secrets that are shorter than kLeast are not looked for: they would be found everywhere.
  explicit SecretFilter(const std::vector<std::string>& secrets);

  // What may go on. Nothing more once a secret was found.
  std::string pass(std::string bytes);
  std::string rest();  // at the end: what is held
  bool found() const { return found_; }
  bool looks() const { return !forms_.empty(); }
  // In text that is whole.
  bool contains(std::string_view text) const;

  static constexpr size_t kLeast = 8;  // bytes
  // Fewer bytes than this are not held: a stream whose events end like them would stall. So this
  // much of a secret may arrive, minus one byte.
  static constexpr size_t kLeastHeld = 4;

 private:
  static constexpr size_t kBlock = 4;      // bytes
  static constexpr size_t kSlotBits = 14;  // a key in all its forms has about 1,000 blocks
  static constexpr size_t kSlots = size_t{1} << kSlotBits;

  static size_t slot(const char* block);
  size_t skip_most(std::string_view text, size_t end) const;
  size_t held_in(std::string_view window) const;

  std::vector<std::string> forms_;
  size_t shortest_ = 0;
  size_t longest_ = 0;
  // How far a search may skip when it sees this block: Wu and Manber, "A fast algorithm for
  // multi-pattern searching", 1994. A pass over each form would slow large answers down.
  std::vector<uint8_t> skip_;
  size_t farthest_ = 0;  // of the skips
  std::string tail_;     // of what came: as much as the beginning of a secret can be
  size_t held_ = 0;      // of the tail
  bool found_ = false;
};

}  // namespace moorage::egress
