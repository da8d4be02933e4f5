#include "repo_cache/formats/ignore.h"

#include <algorithm>

namespace moorage::repo_cache {

namespace {

std::string_view trim_trailing_spaces(std::string_view line) {
  size_t end = 0;  // after the last kept byte
  for (size_t i = 0; i < line.size(); ++i) {
    if (line[i] == ' ') continue;
    if (line[i] == '\\' && ++i >= line.size()) return line;
    end = i + 1;
  }
  return line.substr(0, end);
}

// The last line first, as it wins.
std::vector<PathPattern> parse_ignore_file(std::string_view bytes) {
  std::vector<PathPattern> patterns;
  if (bytes.starts_with("\xef\xbb\xbf")) bytes.remove_prefix(3);
  while (!bytes.empty()) {
    const size_t end = bytes.find('\n');
    std::string_view line = bytes.substr(0, end);
    bytes = end == std::string_view::npos ? std::string_view{} : bytes.substr(end + 1);
    if (line.empty() || line.front() == '#') continue;
    if (line.back() == '\r' && end != std::string_view::npos) line.remove_suffix(1);
    line = trim_trailing_spaces(line.substr(0, line.find('\0')));
    if (!line.empty()) patterns.push_back(parse_path_pattern(line));
  }
  std::reverse(patterns.begin(), patterns.end());
  return patterns;
}

}  // namespace

IgnoreRules::Verdict IgnoreRules::decide(const std::vector<PathPattern>& patterns,
                                         std::string_view path, bool is_directory) const {
  constexpr size_t kBetweenLooks = 16;  // a single pattern takes milliseconds at most
  size_t tried = 0;
  for (const PathPattern& pattern : patterns) {
    if (tried++ % kBetweenLooks == 0 && std::chrono::steady_clock::now() > deadline_) break;
    if (pattern.matches(path, is_directory))
      return pattern.negative ? Verdict::kept : Verdict::ignored;
  }
  return Verdict::undecided;
}

IgnoreRules::Verdict IgnoreRules::ask_all(std::string_view path, bool is_directory) const {
  size_t slash = path.rfind('/');
  for (;;) {
    const std::string_view directory =
        slash == path.npos ? std::string_view{} : path.substr(0, slash);
    if (const auto file = files_.find(directory); file != files_.end()) {
      const std::string_view below = directory.empty() ? path : path.substr(slash + 1);
      const Verdict verdict = decide(file->second, below, is_directory);
      if (verdict != Verdict::undecided) return verdict;
    }
    if (directory.empty()) break;
    slash = path.rfind('/', slash - 1);
  }
  return decide(exclude_, path, is_directory);
}

// From the root down: paths below an ignored directory are never tested.
bool IgnoreRules::directory_ignored(std::string_view directory) const {
  if (const auto known = ignored_directories_.find(std::string(directory));
      known != ignored_directories_.end()) {
    return known->second;
  }
  const size_t slash = directory.rfind('/');
  const bool ignored = (slash != directory.npos && directory_ignored(directory.substr(0, slash))) ||
                       ask_all(directory, true) == Verdict::ignored;
  ignored_directories_.emplace(directory, ignored);
  return ignored;
}

void IgnoreRules::add(const std::string& directory, std::string_view bytes) {
  files_[directory] = parse_ignore_file(bytes);
  ignored_directories_.clear();
}

void IgnoreRules::set_exclude(std::string_view bytes) {
  exclude_ = parse_ignore_file(bytes);
  ignored_directories_.clear();
}

bool IgnoreRules::matches(std::string_view path, bool is_directory) const {
  while (path.ends_with('/')) path.remove_suffix(1);
  const size_t slash = path.rfind('/');
  if (slash != path.npos && directory_ignored(path.substr(0, slash))) return true;
  return ask_all(path, is_directory) == Verdict::ignored;
}

}  // namespace moorage::repo_cache
