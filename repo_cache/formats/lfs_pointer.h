// Pointer files of Git LFS (git-lfs/docs/spec.md): a short text in place of a large file. A path
// that .gitattributes gives to the filter may also hold an ordinary file, which is not a pointer.
#pragma once

#include <cstddef>
#include <string_view>

namespace moorage::repo_cache {

inline constexpr size_t kMaxLfsPointer = 1023;  // the specification: less than 1024 bytes

bool is_lfs_pointer(std::string_view content);

}  // namespace moorage::repo_cache
