// Which untracked paths git would ignore, decided over data: the .gitignore files are handed in as
// bytes, so nothing of an agent's tree is opened here. Same answers as `git check-ignore
// --no-index`: the last pattern that matches decides, the deepest .gitignore first, info/exclude
// last; below an ignored directory all is ignored.
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

  // The .gitignore of a directory ("" = root, no slashes at the ends). Replaces an earlier one.
  void add(const std::string& directory, std::string_view bytes);
  void set_exclude(std::string_view bytes);  // .git/info/exclude
  // After it no pattern matches any more: the walk that asks ends then, too.
  void set_deadline(std::chrono::steady_clock::time_point deadline);
  bool matches(std::string_view path, bool is_directory) const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace moorage::repo_cache
