#include "cli/report/patch.h"

#include <algorithm>

#include "cli/report/commands.h"

namespace moorage::cli {
namespace {

// Git starts each file with this. Lines of a file's content have a prefix character.
constexpr std::string_view kFileHead = "diff --git ";
constexpr size_t kLongestHead = 64 << 10;  // two quoted names of PATH_MAX
constexpr size_t kBlockBytes = 256 << 10;
constexpr uint64_t kOpenFileBytes = 6 << 10;  // shorter files are unfolded,
constexpr uint64_t kOpenBytes = 48 << 10;     // up to this total

// "a/src/x b/src/x" -> "src/x"; two different names stay as git wrote them.
std::string path_of(std::string_view names) {
  const size_t half = names.size() / 2;
  const bool twice = names.size() % 2 == 1 && names[half] == ' ' && names.starts_with("a/") &&
                     names.substr(half + 1).starts_with("b/") &&
                     names.substr(2, half - 2) == names.substr(half + 3);
  return std::string(twice ? names.substr(2, half - 2) : names);
}

}  // namespace

void ReportPatch::feed(std::string_view bytes) {
  while (!bytes.empty()) {
    if (!at_line_start_) {
      const size_t end = bytes.find('\n');
      const size_t size = end == std::string_view::npos ? bytes.size() : end + 1;
      take(bytes.substr(0, size));
      at_line_start_ = end != std::string_view::npos;
      bytes.remove_prefix(size);
      continue;
    }
    const char c = bytes.front();
    held_ += c;
    bytes.remove_prefix(1);
    const size_t compared = std::min(held_.size(), kFileHead.size());
    const bool head = std::string_view(held_).substr(0, compared) == kFileHead.substr(0, compared);
    if (head && c != '\n' && held_.size() < kLongestHead) continue;
    if (head && held_.size() > kFileHead.size()) begin_file(held_);
    take(held_);
    held_.clear();
    at_line_start_ = c == '\n';
  }
}

void ReportPatch::finish() {
  if (!held_.empty()) take(held_);
  held_.clear();
  end_file();
}

void ReportPatch::begin_file(std::string_view header) {
  end_file();
  header.remove_prefix(kFileHead.size());
  while (header.ends_with('\n')) header.remove_suffix(1);
  path_ = path_of(header);
  in_file_ = true;
  ++files_;
}

void ReportPatch::take(std::string_view piece) {
  bytes_ += piece.size();
  file_bytes_ += piece.size();
  const bool cut = file_shown_ < file_bytes_ - piece.size();
  if (cut) return;
  const uint64_t room = std::min(limits_.file_bytes - std::min(limits_.file_bytes, file_shown_),
                                 limits_.total_bytes - std::min(limits_.total_bytes, shown_));
  // Whole lines, unless one line would fill many screens.
  constexpr size_t kShortLine = 4096;
  if (piece.size() > room && piece.size() < kShortLine) return;
  const std::string_view kept = piece.substr(0, room);
  block_ += kept;
  file_shown_ += kept.size();
  shown_ += kept.size();
  if (block_.size() >= kBlockBytes) show_block();
}

void ReportPatch::show_block() {
  if (block_.empty()) return;
  if (!fold_begun_) {
    const bool open = block_.size() <= kOpenFileBytes && shown_ <= kOpenBytes;
    writer_.begin_fold(in_file_ ? quoted(path_) : Text("Patch"), open);
    fold_begun_ = true;
  }
  writer_.block(Block::patch, block_);
  block_.clear();
}

void ReportPatch::end_file() {
  show_block();
  if (fold_begun_) {
    if (file_shown_ < file_bytes_) {
      writer_.note("Cut here: the last " + report_size(file_bytes_ - file_shown_) + " of " +
                   report_size(file_bytes_) + " of this file's patch are left out.");
    }
    writer_.end_fold();
  } else if (in_file_) {
    ++files_left_out_;
  }
  in_file_ = fold_begun_ = false;
  file_bytes_ = file_shown_ = 0;
}

}  // namespace moorage::cli
