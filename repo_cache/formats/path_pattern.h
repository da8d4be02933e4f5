// The patterns of .gitignore and .gitattributes: parsing and matching. A pattern from an agent's
// file can neither hang the host nor exhaust its memory: a pattern with wildcards longer than
// kMaxGlobBytes, or needing more than kMaxGlobSteps for a path, matches nothing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace moorage::repo_cache {

inline constexpr size_t kMaxGlobBytes = 1024;
inline constexpr size_t kMaxGlobSteps = 1 << 18;

// A glob like git's wildmatch: ?, *, [..] with ranges and [:classes:], backslash. With `pathname`,
// none of these matches "/", and "**" between slashes matches any number of directories. Adds its
// cost to `steps`, if given: one per compared byte, and the cost of its memory.
bool glob_matches(std::string_view pattern, std::string_view text, bool pathname,
                  uint64_t* steps = nullptr);

struct PathPattern {
  std::string text;             // without "!" and trailing "/"
  bool negative = false;        // !pattern
  bool directory_only = false;  // pattern/
  bool base_name_only = false;  // no slash in it: matches the last part of a path
  size_t literal_bytes = 0;     // leading bytes without any wildcard

  // `path` is relative to the directory of the pattern's file. `steps`: like glob_matches; a
  // comparison without wildcards costs one.
  bool matches(std::string_view path, bool is_directory, uint64_t* steps = nullptr) const;
};

PathPattern parse_path_pattern(std::string_view text);

}  // namespace moorage::repo_cache
