#include "repo_cache/formats/attributes.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <limits>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/parts.h"
#include "repo_cache/formats/path_pattern.h"

namespace moorage::repo_cache {

namespace {

constexpr std::string_view kBlank = " \t\r\n";
constexpr std::string_view kMacro = "[attr]";
constexpr size_t kMaxLineBytes = 2048;       // longer lines are ignored, as in git
constexpr size_t kMaxFileBytes = 100 << 20;  // as git
constexpr std::array<std::string_view, 6> kNames = {"text",  "crlf",   "eol",
                                                    "ident", "filter", "working-tree-encoding"};

struct Value {
  enum Kind { unspecified, set, unset, text } kind = unspecified;
  std::string string;
  bool is(std::string_view wanted) const { return kind == text && string == wanted; }
};

struct Assignment {
  std::string name;
  Value value;
};

using Assignments = std::vector<Assignment>;

struct Rule {
  std::string macro;  // not empty: a definition, the pattern is unused
  PathPattern pattern;
  Assignments assignments;  // the last one of the line first, as it wins
};

// Includes heap overhead, and map nodes for a macro.
constexpr uint64_t kLineBytes = sizeof(Rule) + 160;
constexpr uint64_t kWordBytes = sizeof(Assignment) + 16;
constexpr uint64_t kAssignmentSteps = 16;  // a lookup in two maps

uint64_t count_lines(std::string_view bytes) {
  return static_cast<uint64_t>(std::count(bytes.begin(), bytes.end(), '\n')) + 1;
}

bool valid_name(std::string_view name) {
  return !name.empty() && name.front() != '-' && std::all_of(name.begin(), name.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
           c == '_' || c == '.';
  });
}

std::string_view skip_blank(std::string_view text) {
  return text.substr(std::min(text.find_first_not_of(kBlank), text.size()));
}

std::string_view take_word(std::string_view& text) {
  const std::string_view word = text.substr(0, text.find_first_of(kBlank));
  text.remove_prefix(word.size());
  return word;
}

// A name in C quotes, git's form of odd names. nullopt: malformed.
std::optional<std::string> take_quoted(std::string_view& text) {
  std::string result;
  static constexpr std::string_view kLetters = "abfnrtv\"\\";
  static constexpr std::string_view kMeanings = "\a\b\f\n\r\t\v\"\\";
  for (size_t i = 1; i < text.size(); ++i) {
    if (text[i] == '"') {
      text.remove_prefix(i + 1);
      return result;
    }
    if (text[i] != '\\') {
      result += text[i];
      continue;
    }
    if (++i >= text.size()) return std::nullopt;
    if (const size_t letter = kLetters.find(text[i]); letter != std::string_view::npos) {
      result += kMeanings[letter];
      continue;
    }
    int byte = 0;
    for (int digit = 0; digit < 3; ++digit, ++i) {
      if (i >= text.size() || text[i] < '0' || text[i] > (digit == 0 ? '3' : '7'))
        return std::nullopt;
      byte = byte * 8 + (text[i] - '0');
    }
    --i;
    result += static_cast<char>(byte);
  }
  return std::nullopt;
}

std::optional<Assignment> parse_assignment(std::string_view word) {
  Assignment result;
  const size_t equals = word.find('=');
  std::string_view name = word.substr(0, equals);
  if (name.starts_with('-') || name.starts_with('!')) {
    result.value.kind = name.front() == '-' ? Value::unset : Value::unspecified;
    name.remove_prefix(1);
  } else if (equals == std::string_view::npos) {
    result.value.kind = Value::set;
  } else {
    result.value.kind = Value::text;
    result.value.string = std::string(word.substr(equals + 1));
  }
  if (!valid_name(name)) return std::nullopt;
  result.name = std::string(name);
  return result;
}

// A malformed line is ignored whole, as in git.
std::optional<Rule> parse_line(std::string_view line, bool macros_allowed) {
  if (line.size() >= kMaxLineBytes) return std::nullopt;
  std::string_view rest = skip_blank(line);
  if (rest.empty() || rest.front() == '#') return std::nullopt;
  Rule rule;
  std::string name;
  std::optional<std::string> quoted;
  std::string_view after_quotes = rest;
  if (rest.front() == '"') quoted = take_quoted(after_quotes);
  if (quoted) {
    name = *quoted;
    rest = after_quotes;
  } else {
    name = std::string(take_word(rest));
  }
  if (name.size() > kMacro.size() && name.starts_with(kMacro)) {
    rule.macro = name.substr(kMacro.size());
    if (!macros_allowed || !valid_name(rule.macro)) return std::nullopt;
  } else {
    rule.pattern = parse_path_pattern(name);
    if (rule.pattern.negative) return std::nullopt;
  }
  for (rest = skip_blank(rest); !rest.empty(); rest = skip_blank(rest)) {
    std::optional<Assignment> assignment = parse_assignment(take_word(rest));
    if (!assignment) return std::nullopt;
    rule.assignments.push_back(std::move(*assignment));
  }
  std::reverse(rule.assignments.begin(), rule.assignments.end());
  rule.assignments.shrink_to_fit();
  return rule;
}

// The last rule first.
std::vector<Rule> parse_file(std::string_view bytes, bool macros_allowed) {
  std::vector<Rule> rules;
  if (bytes.size() >= kMaxFileBytes) return rules;
  bytes = bytes.substr(0, bytes.find('\0'));
  if (bytes.starts_with("\xef\xbb\xbf")) bytes.remove_prefix(3);
  rules.reserve(count_lines(bytes));
  while (!bytes.empty()) {
    if (auto rule = parse_line(base::take_until(bytes, '\n'), macros_allowed))
      rules.push_back(std::move(*rule));
  }
  std::reverse(rules.begin(), rules.end());
  return rules;
}

bool is_ours(std::string_view name) {
  return std::find(kNames.begin(), kNames.end(), name) != kNames.end();
}

bool speaks_of_ours(const Rule& rule) {
  return std::any_of(rule.assignments.begin(), rule.assignments.end(),
                     [](const Assignment& assignment) { return is_ours(assignment.name); });
}

LineEnds line_ends_of(const Value& text, const Value& crlf, const Value& eol) {
  enum class Text { undefined, yes, no, input, automatic };
  const auto read = [](const Value& value) {
    if (value.kind == Value::set) return Text::yes;
    if (value.kind == Value::unset) return Text::no;
    if (value.is("input")) return Text::input;
    if (value.is("auto")) return Text::automatic;
    return Text::undefined;
  };
  Text action = read(text);
  if (action == Text::undefined) action = read(crlf);
  if (action == Text::no) return LineEnds::keep;
  if (action == Text::automatic) return eol.is("crlf") ? LineEnds::auto_crlf : LineEnds::auto_lf;
  if (eol.is("crlf")) return LineEnds::crlf;
  if (eol.is("lf")) return LineEnds::lf;
  return action == Text::undefined ? LineEnds::keep : LineEnds::lf;
}

}  // namespace

struct Attributes::State {
  std::map<std::string, std::vector<Rule>, std::less<>> files;
  const std::vector<Rule> built_in = parse_file("[attr]binary -diff -merge -text\n", true);
  std::map<std::string_view, const Assignments*> macros;  // of the rules
  std::chrono::steady_clock::time_point deadline = std::chrono::steady_clock::time_point::max();
  bool relevant = false;
  uint64_t most_steps = std::numeric_limits<uint64_t>::max();
  mutable std::atomic<uint64_t> steps = 0;

  State() { find_macros({}); }

  void add(const std::string& directory, std::string_view bytes) {
    const bool root = directory.empty();
    if (root) macros.clear();
    std::vector<Rule>& rules = files[directory];
    rules = parse_file(bytes, root);
    relevant |= std::any_of(rules.begin(), rules.end(), speaks_of_ours);
    if (root) find_macros(rules);
  }

  void find_macros(const std::vector<Rule>& root) {
    for (const std::vector<Rule>* rules : {&root, &built_in}) {
      for (const Rule& rule : *rules) {
        if (!rule.macro.empty()) macros.emplace(rule.macro, &rule.assignments);
      }
    }
  }

  // The first rule that sets an attribute wins, so this goes from the strongest rule to the
  // weakest. A macro is replaced by its assignments; macros may nest as deep as a file is long.
  using Values = std::map<std::string_view, const Value*>;
  void apply(const Assignments& assignments, Values& values, uint64_t& taken) const {
    struct Place {
      const Assignments* list;
      size_t at;
    };
    std::vector<Place> open{{&assignments, 0}};
    while (!open.empty()) {
      Place& place = open.back();
      if (place.at == place.list->size()) {
        open.pop_back();
        continue;
      }
      const Assignment& one = (*place.list)[place.at++];
      taken += kAssignmentSteps;
      const auto macro = macros.find(one.name);
      if (macro == macros.end() && !is_ours(one.name)) continue;
      if (!values.emplace(one.name, &one.value).second) continue;
      if (one.value.kind == Value::set && macro != macros.end()) open.push_back({macro->second, 0});
    }
  }

  void apply_file(std::string_view directory, std::string_view path, Values& values) const {
    constexpr size_t kBetweenLooks = 16;  // a single pattern takes milliseconds at most
    const auto file = files.find(directory);
    if (file == files.end()) return;
    const std::string_view below = directory.empty() ? path : path.substr(directory.size() + 1);
    size_t tried = 0;
    uint64_t taken = 0;
    for (const Rule& rule : file->second) {
      if (tried++ % kBetweenLooks == 0) {
        if (std::chrono::steady_clock::now() > deadline) return;
        charge(std::exchange(taken, 0));
      }
      if (rule.macro.empty() && rule.pattern.matches(below, false, &taken))
        apply(rule.assignments, values, taken);
    }
    charge(taken);
  }

  void charge(uint64_t taken) const {
    if (steps.fetch_add(taken, std::memory_order_relaxed) + taken <= most_steps) return;
    throw Error(
        Code::resource_exhausted,
        "comparing the files of this commit with the patterns in its .gitattributes takes too long",
        "commit fewer or simpler patterns, such as one for a directory instead of one for each "
        "file, or choose another commit");
  }
};

Attributes::Attributes() : state_(std::make_unique<State>()) {}
Attributes::~Attributes() = default;
Attributes::Attributes(Attributes&&) noexcept = default;
Attributes& Attributes::operator=(Attributes&&) noexcept = default;

void Attributes::add(const std::string& directory, std::string_view bytes) {
  state_->add(directory, bytes);
}

uint64_t Attributes::memory_bytes(std::string_view bytes) {
  uint64_t words = 0;
  bool in_word = false;
  for (const char c : bytes) {
    const bool blank = kBlank.find(c) != std::string_view::npos;
    words += !blank && !in_word;
    in_word = !blank;
  }
  return bytes.size() + count_lines(bytes) * kLineBytes + words * kWordBytes;
}

void Attributes::set_deadline(std::chrono::steady_clock::time_point deadline) {
  state_->deadline = deadline;
}

void Attributes::set_most_steps(uint64_t steps) { state_->most_steps = steps; }

uint64_t Attributes::steps() const { return state_->steps; }

bool Attributes::relevant() const { return state_->relevant; }

Conversion Attributes::conversion(std::string_view path) const {
  Conversion result;
  if (!state_->relevant) return result;
  State::Values values;
  for (size_t slash = path.rfind('/'); slash != path.npos;
       slash = slash ? path.rfind('/', slash - 1) : path.npos) {
    state_->apply_file(path.substr(0, slash), path, values);
  }
  state_->apply_file("", path, values);
  const auto value = [&values](std::string_view name) {
    const auto found = values.find(name);
    return found == values.end() ? Value{} : *found->second;
  };
  result.line_ends = line_ends_of(value("text"), value("crlf"), value("eol"));
  result.ident = value("ident").kind == Value::set;
  if (value("filter").kind == Value::text) result.filter = value("filter").string;
  if (value("working-tree-encoding").kind == Value::text) {
    result.encoding = value("working-tree-encoding").string;
  }
  return result;
}

}  // namespace moorage::repo_cache
