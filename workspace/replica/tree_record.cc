#include "workspace/replica/tree_record.h"

#include <charconv>

#include "base/error.h"

namespace moorage::workspace {
namespace {

using state_db::SeenEntry;

template <typename Number>
bool take_number(std::string_view& text, Number& number) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc()) return false;
  text.remove_prefix(static_cast<size_t>(end - text.data()));
  if (text.starts_with(' ')) text.remove_prefix(1);
  return true;
}

std::string line_of(const SeenEntry& entry) {
  std::string line = entry.path;
  line += '\0';
  if (entry.gone) return line + "-\n";
  const bool settled = entry.looked_ns - entry.changed_ns > kSettledNs;
  return line + std::to_string(entry.inode) + " " + std::to_string(settled ? entry.changed_ns : 0) +
         " " + std::to_string(entry.size) + " " + (entry.directory ? "d" : "") +
         (entry.linked ? "l" : "") + "\n";
}

}  // namespace

void TreeRecord::end_round(const std::function<void(std::string_view line)>& sink) {
  seen_.list_round([&](const SeenEntry& entry) {
    if (entry.cleared && !entry.gone) {
      SeenEntry before;
      before.path = entry.path;
      before.gone = true;
      sink(line_of(before));
    }
    sink(line_of(entry));
  });
  seen_.end_round();
}

void TreeRecord::take(std::string_view path, std::string_view facts) {
  SeenEntry entry;
  entry.path = path;
  if (facts == "-") {
    seen_.erase(entry.path);
    seen_.erase_below(entry.path);
    return;
  }
  if (!take_number(facts, entry.inode) || !take_number(facts, entry.changed_ns) ||
      !take_number(facts, entry.size) || facts.find_first_not_of("dl") != std::string_view::npos) {
    throw Error(Code::corrupted, "the list of a pack is damaged");
  }
  entry.directory = facts.find('d') != std::string_view::npos;
  entry.linked = facts.find('l') != std::string_view::npos;
  entry.looked_ns = entry.changed_ns == 0 ? 0 : INT64_MAX;
  if (!entry.directory) {
    const auto before = seen_.find(entry.path);
    if (before && before->directory) seen_.erase_below(entry.path);
  }
  seen_.put(entry);
}

void TreeRecord::read(std::string_view part) {
  constexpr size_t kMaxLineBytes = 2 << 20;
  unread_ += part;
  size_t at = 0;
  for (;;) {
    const size_t nul = unread_.find('\0', at);
    const size_t end = nul == std::string::npos ? nul : unread_.find('\n', nul);
    if (end == std::string::npos) break;
    const std::string_view all = unread_;
    take(all.substr(at, nul - at), all.substr(nul + 1, end - nul - 1));
    at = end + 1;
  }
  unread_.erase(0, at);
  if (unread_.size() > kMaxLineBytes) throw Error(Code::corrupted, "the list of a pack is damaged");
}

void TreeRecord::end_of_list() {
  if (!unread_.empty()) throw Error(Code::corrupted, "the list of a pack is truncated");
  seen_.end_round();
}

}  // namespace moorage::workspace
