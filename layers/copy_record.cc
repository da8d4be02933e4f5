#include "layers/copy_record.h"

#include <charconv>
#include <utility>
#include <vector>

namespace moorage::layers {
namespace {

constexpr std::string_view kHead = "moorage copy 1\n";
constexpr std::string_view kEnd("\0\n", 2);

// Takes the text before `mark`, and the mark itself; false if there is no mark.
bool take_until(std::string_view& text, char mark, std::string_view& taken) {
  const size_t at = text.find(mark);
  if (at == std::string_view::npos) return false;
  taken = text.substr(0, at);
  text.remove_prefix(at + 1);
  return true;
}

template <class Number>
bool read_number(std::string_view text, Number& number) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc() && end == text.data() + text.size();
}

}  // namespace

// Without recursion: untrusted input decides the depth.
std::string format_record(const RecordedDirectory& root) {
  struct Level {
    const RecordedDirectory* directory;
    decltype(root.entries.begin()) next;
  };
  std::string text(kHead);
  std::vector<Level> levels{{&root, root.entries.begin()}};
  while (!levels.empty()) {
    Level& level = levels.back();
    if (level.next == level.directory->entries.end()) {
      levels.pop_back();
      text += kEnd;
      continue;
    }
    const auto& [name, entry] = *level.next++;
    text.append(name).push_back('\0');
    text += std::to_string(entry.inode) + " " + std::to_string(entry.changed_ns) +
            (entry.directory ? "/\n" : "\n");
    if (entry.directory)
      levels.push_back({entry.directory.get(), entry.directory->entries.begin()});
  }
  return text;
}

std::optional<RecordedDirectory> parse_record(std::string_view text) {
  if (text.substr(0, kHead.size()) != kHead) return std::nullopt;
  text.remove_prefix(kHead.size());
  RecordedDirectory root;
  std::vector<RecordedDirectory*> levels{&root};
  while (!levels.empty()) {
    std::string_view name;
    std::string_view line;
    if (!take_until(text, '\0', name) || !take_until(text, '\n', line)) return std::nullopt;
    if (name.empty()) {
      if (!line.empty()) return std::nullopt;
      levels.pop_back();
      continue;
    }
    RecordedEntry entry;
    const bool is_directory = !line.empty() && line.back() == '/';
    if (is_directory) line.remove_suffix(1);
    std::string_view inode;
    if (!take_until(line, ' ', inode) || !read_number(inode, entry.inode) ||
        !read_number(line, entry.changed_ns)) {
      return std::nullopt;
    }
    if (is_directory) entry.directory = std::make_unique<RecordedDirectory>();
    RecordedDirectory* const below = entry.directory.get();
    if (!levels.back()->entries.emplace(name, std::move(entry)).second) return std::nullopt;
    if (below) levels.push_back(below);
  }
  if (!text.empty()) return std::nullopt;
  return root;
}

}  // namespace moorage::layers
