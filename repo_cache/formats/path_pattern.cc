#include "repo_cache/formats/path_pattern.h"

#include <cctype>
#include <optional>
#include <vector>

namespace moorage::repo_cache {

namespace {

using Byte = unsigned char;

// nullopt: unknown class.
std::optional<bool> in_class(std::string_view name, Byte c) {
  if (name == "alnum") return c < 0x80 && std::isalnum(c);
  if (name == "alpha") return c < 0x80 && std::isalpha(c);
  if (name == "blank") return c == ' ' || c == '\t';
  if (name == "cntrl") return c < 0x20 || c == 0x7f;
  if (name == "digit") return c >= '0' && c <= '9';
  if (name == "graph") return c > 0x20 && c < 0x7f;
  if (name == "lower") return c >= 'a' && c <= 'z';
  if (name == "print") return c >= 0x20 && c < 0x7f;
  if (name == "punct") return c < 0x80 && std::ispunct(c);
  if (name == "space") return c < 0x80 && std::isspace(c);
  if (name == "upper") return c >= 'A' && c <= 'Z';
  if (name == "xdigit") return c < 0x80 && std::isxdigit(c);
  return std::nullopt;
}

// One [..] of a pattern. position: in, after the "["; out, after the "]". nullopt: malformed.
class BracketSet {
 public:
  BracketSet(std::string_view pattern, size_t& position) : pattern_(pattern), at_(position) {}

  std::optional<bool> contains(Byte c) {
    const bool negated = at_ < pattern_.size() && (pattern_[at_] == '!' || pattern_[at_] == '^');
    if (negated) ++at_;
    bool found = false;
    Byte range_start = 0;  // 0: a dash is literal here
    bool first = true;
    for (; first || at_ >= pattern_.size() || pattern_[at_] != ']'; first = false) {
      const std::optional<bool> item = match_item(c, range_start);
      if (!item) return std::nullopt;
      found |= *item;
    }
    ++at_;
    return found != negated;
  }

 private:
  std::optional<bool> match_item(Byte c, Byte& range_start) {
    if (at_ >= pattern_.size()) return std::nullopt;
    if (pattern_[at_] == '-' && range_start && next() && next() != ']') {
      ++at_;
      const std::optional<Byte> end = literal();
      if (!end) return std::nullopt;
      const bool inside = c >= range_start && c <= *end;
      range_start = 0;
      return inside;
    }
    if (pattern_[at_] == '[' && next() == ':') {
      const size_t close = pattern_.find(']', at_ + 2);
      if (close == std::string_view::npos) return std::nullopt;
      if (close > at_ + 2 && pattern_[close - 1] == ':') {
        const std::string_view name = pattern_.substr(at_ + 2, close - at_ - 3);
        at_ = close + 1;
        range_start = 0;
        return in_class(name, c);
      }
    }
    const std::optional<Byte> byte = literal();
    if (!byte) return std::nullopt;
    range_start = *byte;
    return *byte == c;
  }

  Byte next() const { return at_ + 1 < pattern_.size() ? static_cast<Byte>(pattern_[at_ + 1]) : 0; }

  std::optional<Byte> literal() {
    if (pattern_[at_] == '\\' && ++at_ >= pattern_.size()) return std::nullopt;
    return static_cast<Byte>(pattern_[at_++]);
  }

  std::string_view pattern_;
  size_t& at_;
};

class GlobMatcher {
 public:
  GlobMatcher(std::string_view pattern, std::string_view text, bool pathname)
      : pattern_(pattern), text_(text), pathname_(pathname) {}

  bool match(size_t p, size_t t) {
    for (; p < pattern_.size(); ++t) {
      if (pattern_[p] == '*') return match_star(p, t);
      if (++steps_ > kMaxGlobSteps) return false;
      if (t >= text_.size() || !match_one(p, text_[t])) return false;
    }
    return t == text_.size();
  }

  uint64_t steps() const { return steps_ + memory_steps_; }

 private:
  static constexpr size_t kBitsAStep = 64;  // of memory to clear

  // Matches one byte of text against the pattern at p (not a star), and advances p.
  bool match_one(size_t& p, char c) {
    const char wanted = pattern_[p++];
    if (wanted == '?') return !(pathname_ && c == '/');
    if (wanted == '[') {
      const std::optional<bool> inside = BracketSet(pattern_, p).contains(static_cast<Byte>(c));
      return inside.value_or(false) && !(pathname_ && c == '/');
    }
    if (wanted != '\\') return wanted == c;
    return p < pattern_.size() && pattern_[p++] == c;
  }

  bool match_star(size_t p, size_t t) {
    const size_t first = p;
    while (p < pattern_.size() && pattern_[p] == '*') ++p;
    bool crosses = !pathname_;
    if (pathname_ && p - first > 1 && stands_alone(first, p)) {
      crosses = true;
      if (p < pattern_.size() && pattern_[p] == '/' && try_rest(p + 1, t)) return true;
    }
    if (p == pattern_.size()) return crosses || text_.find('/', t) == std::string_view::npos;
    for (; t < text_.size() && ++steps_ <= kMaxGlobSteps; ++t) {
      if (try_rest(p, t)) return true;
      if (!crosses && text_[t] == '/') return false;
    }
    return false;
  }

  bool stands_alone(size_t first, size_t end) const {
    const std::string_view rest = pattern_.substr(end);
    return (first == 0 || pattern_[first - 1] == '/') &&
           (rest.empty() || rest.front() == '/' || rest.starts_with("\\/"));
  }

  // A pair of positions that failed once fails again, so each is tried once. One bit per pair.
  bool try_rest(size_t p, size_t t) {
    if (failed_.empty()) {
      failed_.resize((pattern_.size() + 1) * (text_.size() + 1));
      memory_steps_ = failed_.size() / kBitsAStep;
    }
    const size_t key = p * (text_.size() + 1) + t;
    if (failed_[key]) return false;
    if (match(p, t)) return true;
    failed_[key] = true;
    return false;
  }

  std::string_view pattern_;
  std::string_view text_;
  bool pathname_;
  std::vector<bool> failed_;
  size_t steps_ = 0;
  size_t memory_steps_ = 0;
};

}  // namespace

bool glob_matches(std::string_view pattern, std::string_view text, bool pathname, uint64_t* steps) {
  if (pattern.size() > kMaxGlobBytes) return false;
  GlobMatcher matcher(pattern, text, pathname);
  const bool matches = matcher.match(0, 0);
  if (steps) *steps += matcher.steps();
  return matches;
}

PathPattern parse_path_pattern(std::string_view text) {
  PathPattern pattern;
  if (text.starts_with('!')) {
    pattern.negative = true;
    text.remove_prefix(1);
  }
  if (text.ends_with('/')) {
    pattern.directory_only = true;
    text.remove_suffix(1);
  }
  pattern.base_name_only = text.find('/') == std::string_view::npos;
  if (text.starts_with('/')) text.remove_prefix(1);
  pattern.text = std::string(text);
  pattern.literal_bytes = std::min(text.find_first_of("*?[\\"), text.size());
  return pattern;
}

bool PathPattern::matches(std::string_view path, bool is_directory, uint64_t* steps) const {
  if (steps) *steps += 1;
  if (directory_only && !is_directory) return false;
  if (base_name_only) {
    const size_t slash = path.rfind('/');
    if (slash != std::string_view::npos) path.remove_prefix(slash + 1);
    if (literal_bytes == text.size()) return path == text;
    return glob_matches(text, path, false, steps);
  }
  // Compares the literal beginning first and globs only the rest, like git: so the stars in "a/b**"
  // are at a beginning, where they cross directories.
  const std::string_view literal = std::string_view(text).substr(0, literal_bytes);
  if (!path.starts_with(literal)) return false;
  if (literal_bytes == text.size()) return path.size() == text.size();
  return glob_matches(std::string_view(text).substr(literal_bytes), path.substr(literal_bytes),
                      true, steps);
}

}  // namespace moorage::repo_cache
