// Decides which untracked paths git ignores, from .gitignore files passed in as bytes: this code
// opens nothing in an agent's tree. Same answers as `git check-ignore --no-index`: the last
// matching pattern decides, the deepest .gitignore first, info/exclude last; everything below an
// ignored directory is ignored.
#pragma once

#include <chrono>
#include <map>
#include <memory>
#include <string>
#include <string_view>

namespace moorage::repo_cache {

class IgnoreRules {
 public:
  IgnoreRules();
  ~IgnoreRules();
  IgnoreRules(IgnoreRules&&) noexcept;
  IgnoreRules& operator=(IgnoreRules&&) noexcept;

  // Adds or replaces the .gitignore of a directory ("" = root, no slashes at the ends).
  void add(const std::string& directory, std::string_view bytes);
  void set_exclude(std::string_view bytes);  // .git/info/exclude
  // After it no pattern matches: the calling walk must stop then, too.
  void set_deadline(std::chrono::steady_clock::time_point deadline);
  bool matches(std::string_view path, bool is_directory) const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace moorage::repo_cache
