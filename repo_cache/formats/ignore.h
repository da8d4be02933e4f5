// Decides which untracked paths git ignores, from .gitignore files passed in as bytes: this code
// opens nothing in an agent's tree. Same answers as `git check-ignore --no-index`: the last
// matching pattern decides, the deepest .gitignore first, info/exclude last; everything below an
// ignored directory is ignored.
#pragma once

#include <chrono>
#include <map>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "repo_cache/formats/path_pattern.h"

namespace moorage::repo_cache {

class IgnoreRules {
 public:
  using Deadline = std::chrono::steady_clock::time_point;
  // Adds or replaces the .gitignore of a directory ("" = root, no slashes at the ends).
  void add(const std::string& directory, std::string_view bytes);
  void set_exclude(std::string_view bytes);  // .git/info/exclude
  // After it no pattern matches: the calling walk must stop then, too.
  void set_deadline(Deadline deadline) { deadline_ = deadline; }
  bool matches(std::string_view path, bool is_directory) const;

 private:
  enum class Verdict { ignored, kept, undecided };
  Verdict decide(const std::vector<PathPattern>& patterns, std::string_view path,
                 bool is_directory) const;
  Verdict ask_all(std::string_view path, bool is_directory) const;
  bool directory_ignored(std::string_view directory) const;

  std::map<std::string, std::vector<PathPattern>, std::less<>> files_;
  std::vector<PathPattern> exclude_;
  mutable std::unordered_map<std::string, bool> ignored_directories_;  // answers so far
  Deadline deadline_ = Deadline::max();
};

}  // namespace moorage::repo_cache
