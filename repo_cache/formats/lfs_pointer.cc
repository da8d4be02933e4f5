#include "repo_cache/formats/lfs_pointer.h"

#include "base/parts.h"

namespace moorage::repo_cache {
namespace {

constexpr size_t kHashDigits = 64;

bool has_only(std::string_view text, std::string_view letters) {
  return !text.empty() && text.find_first_not_of(letters) == std::string_view::npos;
}

}  // namespace

bool is_lfs_pointer(std::string_view content) {
  if (content.size() > kMaxLfsPointer) return false;
  const std::string_view version = base::take_until(content, '\n');
  if (version != "version https://git-lfs.github.com/spec/v1" &&
      version != "version https://hawser.github.com/spec/v1") {
    return false;
  }
  bool has_hash = false;
  bool has_size = false;
  while (!content.empty()) {  // keys may stand between them: extensions
    std::string_view value = base::take_until(content, '\n');
    const std::string_view key = base::take_until(value, ' ');
    if (key == "size") has_size = has_only(value, "0123456789");
    if (key == "oid") {
      has_hash = value.starts_with("sha256:") && value.size() == kHashDigits + 7 &&
                 has_only(value.substr(7), "0123456789abcdef");
    }
  }
  return has_hash && has_size;
}

}  // namespace moorage::repo_cache
