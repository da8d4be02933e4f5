// The patterns of .gitignore and .gitattributes: how a line is read and what it matches.
// A pattern from an agent's file can neither hang the host nor take its memory: one with wildcards
// that is longer than kMaxGlobBytes, or takes more than kMaxGlobSteps for a path, matches nothing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace moorage::repo_cache {

inline constexpr size_t kMaxGlobBytes = 1024;
inline constexpr size_t kMaxGlobSteps = 1 << 18;

// A glob as git's wildmatch has it: ?, *, [..] with ranges and [:classes:], backslash.
// With `pathname`, none of these matches "/", and "**" between slashes matches any number of
// directories.
// `steps`, if given, grows by what it took: one for each byte compared, and what its memory costs.
bool glob_matches(std::string_view pattern, std::string_view text, bool pathname,
                  uint64_t* steps = nullptr);

struct PathPattern {
  std::string text;             // without "!" and trailing "/"
  bool negative = false;        // !pattern
  bool directory_only = false;  // pattern/
  bool base_name_only = false;  // no slash in it: compared with the last part of a path
  size_t literal_bytes = 0;     // leading bytes without any wildcard

  // path is relative to the directory of the file that has the pattern.
  // `steps`: as of glob_matches; a path that is compared without wildcards takes one.
  bool matches(std::string_view path, bool is_directory, uint64_t* steps = nullptr) const;
};

PathPattern parse_path_pattern(std::string_view text);

}  // namespace moorage::repo_cache
