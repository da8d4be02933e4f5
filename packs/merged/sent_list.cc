#include "packs/merged/sent_list.h"

#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <utility>

#include "base/error.h"
#include "base/os/open_beneath.h"
#include "base/parts.h"

namespace moorage::packs {
namespace {

constexpr size_t kBufferBytes = 256 << 10;
constexpr size_t kMaxLineBytes = 1 << 20;
constexpr size_t kMaxLearned = 200'000;  // beyond it, an entry is sent back once

[[noreturn]] void damaged() {
  throw Error(Code::corrupted, "the list of sent entries is damaged",
              "remove the sandbox on that machine and start it again");
}

template <typename Number>
Number take_number(std::string_view& text) {
  Number number{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end == text.data() + text.size() || *end != ' ') damaged();
  text.remove_prefix(static_cast<size_t>(end - text.data()) + 1);
  return number;
}

SentEntry parse(std::string_view path, std::string_view facts) {
  SentEntry entry;
  entry.path = path;
  entry.inode = take_number<uint64_t>(facts);
  entry.changed_ns = take_number<int64_t>(facts);
  entry.looked_ns = take_number<int64_t>(facts);
  entry.size = take_number<uint64_t>(facts);
  const std::string_view flags = base::take_until(facts, ' ');
  if (flags.empty()) damaged();
  entry.type = flags.front();
  entry.whole = flags.substr(1) == "W";
  entry.digest = facts;
  return entry;
}

void append_line(std::string& out, const SentEntry& entry) {
  out.append(entry.path).push_back('\0');
  out.append(std::to_string(entry.inode)).push_back(' ');
  out.append(std::to_string(entry.changed_ns)).push_back(' ');
  out.append(std::to_string(entry.looked_ns)).push_back(' ');
  out.append(std::to_string(entry.size)).push_back(' ');
  out.push_back(entry.type);
  out.append(entry.whole ? "W " : " ").append(entry.digest).push_back('\n');
}

}  // namespace

int compare_in_walk(std::string_view one, std::string_view other) {
  while (!one.empty() && !other.empty()) {
    const std::string_view first = base::take_until(one, '/');
    const std::string_view second = base::take_until(other, '/');
    if (first == second) continue;
    const bool last = first == kWalkedLast;
    if (last || second == kWalkedLast) return last ? 1 : -1;
    return first < second ? -1 : 1;
  }
  return one.empty() ? (other.empty() ? 0 : -1) : 1;
}

bool is_below(std::string_view path, std::string_view directory) {
  return path.size() > directory.size() && path[directory.size()] == '/' &&
         path.starts_with(directory);
}

struct SentList::Reader {
  explicit Reader(Fd opened) : file(std::move(opened)) {}

  const std::optional<SentEntry>& peek() {
    if (!next && !ended) read_line();
    return next;
  }

  std::optional<SentEntry> take() { return std::exchange(next, std::nullopt); }

  void read_line() {
    for (;;) {
      const size_t nul = buffer.find('\0', at);
      const size_t end = nul == std::string::npos ? nul : buffer.find('\n', nul);
      if (end != std::string::npos) {
        const std::string_view all = buffer;
        next = parse(all.substr(at, nul - at), all.substr(nul + 1, end - nul - 1));
        at = end + 1;
        return;
      }
      if (buffer.size() - at > kMaxLineBytes) damaged();
      buffer.erase(0, at);
      at = 0;
      const std::string more = file ? base::read_up_to(file.get(), kBufferBytes) : "";
      if (more.empty() && !buffer.empty()) damaged();
      ended = more.empty();
      if (ended) return;
      buffer += more;
    }
  }

  Fd file;
  std::string buffer;
  size_t at = 0;
  bool ended = false;
  std::optional<SentEntry> next;
};

struct SentList::Writer {
  Fd file;
  std::string buffer;

  void flush() {
    base::write_all(file.get(), buffer);
    buffer.clear();
  }
};

SentList::SentList() = default;
SentList::SentList(int directory, std::string name)
    : directory_(directory), name_(std::move(name)) {}
SentList::~SentList() = default;

std::string SentList::file_name(unsigned number) const {
  return number == 0 ? name_ : name_ + "." + std::to_string(number);
}

bool SentList::exists() const {
  return directory_ >= 0 && faccessat(directory_, name_.c_str(), F_OK, AT_SYMLINK_NOFOLLOW) == 0;
}

void SentList::commit() {
  learned_.clear();
  if (last_ == 0) return;
  base::check(renameat(directory_, file_name(last_).c_str(), directory_, name_.c_str()),
              "replace the list of sent entries");
  last_ = 0;
}

void SentList::remove() {
  learned_.clear();
  for (unsigned number = 0; directory_ >= 0 && number <= 2; ++number) {
    if (unlinkat(directory_, file_name(number).c_str(), 0) < 0 && errno != ENOENT)
      base::throw_errno("remove the list of sent entries");
  }
  last_ = 0;
}

void SentList::learn(const std::string& path, LearnedEntry entry) {
  if (learned_.size() < kMaxLearned) learned_[path] = std::move(entry);
}

const LearnedEntry* SentList::learned(std::string_view path) const {
  const auto found = learned_.find(path);
  return found == learned_.end() ? nullptr : &found->second;
}

void SentList::start_round() {
  last_ = 0;
  unmet_.clear();
  next_unmet_ = 0;
  for (const auto& [path, entry] : learned_) {
    if (!entry.removed) unmet_.push_back(path);
  }
  std::sort(unmet_.begin(), unmet_.end(), [](const std::string& one, const std::string& other) {
    return compare_in_walk(one, other) < 0;
  });
}

void SentList::start_pass() {
  Fd file;
  if (directory_ >= 0) {
    file = base::try_open_beneath(directory_, file_name(last_), O_RDONLY);
    if (!file && errno != ENOENT) base::throw_errno("open the list of sent entries");
  }
  reader_ = std::make_unique<Reader>(std::move(file));
  if (directory_ < 0) return;
  const std::string name = file_name(last_ == 1 ? 2 : 1);
  if (unlinkat(directory_, name.c_str(), 0) < 0 && errno != ENOENT)
    base::throw_errno("remove an old list of sent entries");
  writer_ = std::make_unique<Writer>();
  writer_->file = base::open_beneath(directory_, name, O_WRONLY | O_CREAT | O_EXCL, 0600);
}

// The next entry, of the list or learned, if `wanted(path)`.
template <typename Wanted>
std::optional<SentEntry> SentList::take_if(const Wanted& wanted) {
  const auto& listed = reader_->peek();
  const bool of_list = listed && wanted(listed->path);
  if (next_unmet_ < unmet_.size() && wanted(unmet_[next_unmet_])) {
    const int order = of_list ? compare_in_walk(unmet_[next_unmet_], listed->path) : -1;
    const std::string& path = order <= 0 ? unmet_[next_unmet_++] : unmet_[next_unmet_];
    if (order < 0) {
      SentEntry entry;
      entry.path = path;
      entry.learned = true;
      return entry;
    }
  }
  if (!of_list) return std::nullopt;
  return reader_->take();
}

std::optional<SentEntry> SentList::passed_over(std::string_view path) {
  return take_if([path](const std::string& next) { return compare_in_walk(next, path) < 0; });
}

std::optional<SentEntry> SentList::arrive(std::string_view path) {
  if (next_unmet_ < unmet_.size() && unmet_[next_unmet_] == path) ++next_unmet_;
  const auto& next = reader_->peek();
  if (!next || next->path != path) return std::nullopt;
  return reader_->take();
}

std::optional<SentEntry> SentList::next_below(std::string_view path) {
  return take_if([path](const std::string& next) { return is_below(next, path); });
}

void SentList::put(const SentEntry& entry) {
  if (!writer_) return;
  append_line(writer_->buffer, entry);
  if (writer_->buffer.size() >= kBufferBytes) writer_->flush();
}

void SentList::end_pass() {
  reader_.reset();
  if (!writer_) return;
  writer_->flush();
  writer_.reset();
  last_ = last_ == 1 ? 2 : 1;
}

}  // namespace moorage::packs
