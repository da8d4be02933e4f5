#include "repo_cache/formats/ignore.h"

#include <algorithm>
#include <unordered_map>
#include <vector>

#include "repo_cache/formats/path_pattern.h"

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

enum class Verdict { ignored, kept, undecided };

using Deadline = std::chrono::steady_clock::time_point;

Verdict decide(const std::vector<PathPattern>& patterns, std::string_view path, bool is_directory,
               Deadline deadline) {
  constexpr size_t kBetweenLooks = 16;  // a single pattern takes milliseconds at most
  size_t tried = 0;
  for (const PathPattern& pattern : patterns) {
    if (tried++ % kBetweenLooks == 0 && std::chrono::steady_clock::now() > deadline) break;
    if (pattern.matches(path, is_directory))
      return pattern.negative ? Verdict::kept : Verdict::ignored;
  }
  return Verdict::undecided;
}

}  // namespace

struct IgnoreRules::State {
  std::map<std::string, std::vector<PathPattern>, std::less<>> files;
  std::vector<PathPattern> exclude;
  mutable std::unordered_map<std::string, bool> ignored_directories;  // answers so far
  Deadline deadline = Deadline::max();

  Verdict ask_all(std::string_view path, bool is_directory) const {
    size_t slash = path.rfind('/');
    for (;;) {
      const std::string_view directory =
          slash == path.npos ? std::string_view{} : path.substr(0, slash);
      if (const auto file = files.find(directory); file != files.end()) {
        const std::string_view below = directory.empty() ? path : path.substr(slash + 1);
        const Verdict verdict = decide(file->second, below, is_directory, deadline);
        if (verdict != Verdict::undecided) return verdict;
      }
      if (directory.empty()) break;
      slash = path.rfind('/', slash - 1);
    }
    return decide(exclude, path, is_directory, deadline);
  }

  // From the root down: paths below an ignored directory are never tested.
  bool directory_ignored(std::string_view directory) const {
    if (const auto known = ignored_directories.find(std::string(directory));
        known != ignored_directories.end()) {
      return known->second;
    }
    const size_t slash = directory.rfind('/');
    const bool ignored =
        (slash != directory.npos && directory_ignored(directory.substr(0, slash))) ||
        ask_all(directory, true) == Verdict::ignored;
    ignored_directories.emplace(directory, ignored);
    return ignored;
  }
};

IgnoreRules::IgnoreRules() : state_(std::make_unique<State>()) {}
IgnoreRules::~IgnoreRules() = default;
IgnoreRules::IgnoreRules(IgnoreRules&&) noexcept = default;
IgnoreRules& IgnoreRules::operator=(IgnoreRules&&) noexcept = default;

void IgnoreRules::add(const std::string& directory, std::string_view bytes) {
  state_->files[directory] = parse_ignore_file(bytes);
  state_->ignored_directories.clear();
}

void IgnoreRules::set_exclude(std::string_view bytes) {
  state_->exclude = parse_ignore_file(bytes);
  state_->ignored_directories.clear();
}

void IgnoreRules::set_deadline(std::chrono::steady_clock::time_point deadline) {
  state_->deadline = deadline;
}

bool IgnoreRules::matches(std::string_view path, bool is_directory) const {
  while (path.ends_with('/')) path.remove_suffix(1);
  const size_t slash = path.rfind('/');
  if (slash != path.npos && state_->directory_ignored(path.substr(0, slash))) return true;
  return state_->ask_all(path, is_directory) == Verdict::ignored;
}

}  // namespace moorage::repo_cache
