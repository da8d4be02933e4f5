#include "base/git_identity.h"

#include "base/utf8.h"

namespace moorage::base {
namespace {

bool is_control(std::string_view character) {
  const auto first = static_cast<unsigned char>(character[0]);
  if (character.size() == 1) return first < 0x20 || first == 0x7f;
  return first == 0xc2 && static_cast<unsigned char>(character[1]) < 0xa0;  // C1
}

}  // namespace

bool is_git_identity(std::string_view text) {
  if (text.size() > kMaxGitIdentity) return false;
  bool has_content = false;
  while (!text.empty()) {
    const size_t length = utf8_length(text);
    if (length == 0) return false;
    const std::string_view character = text.substr(0, length);
    if (is_control(character) || character == "<" || character == ">") return false;
    has_content =
        has_content || std::string_view(" .,:;\"\\'").find(character) == std::string_view::npos;
    text.remove_prefix(length);
  }
  return has_content;
}

}  // namespace moorage::base
