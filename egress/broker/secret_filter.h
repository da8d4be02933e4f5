// Finds secrets in bytes that pass by. Bytes that may be the beginning of one are held until the
// next ones come.
#pragma once

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
  std::string pass(std::string_view bytes);
  std::string rest();  // at the end: what is held
  bool found() const { return found_; }

  static constexpr size_t kLeast = 8;  // bytes

 private:
  struct Pattern {
    std::string text;
    std::vector<size_t> fallback;  // Knuth, Morris and Pratt: the longest border of each prefix
    size_t matched = 0;
  };
  std::vector<Pattern> patterns_;
  std::string held_;
  bool found_ = false;
};

}  // namespace moorage::egress
