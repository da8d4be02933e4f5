#include "packs/merged/tree_listing.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <climits>
#include <iterator>

#include "base/error.h"
#include "base/os/files.h"

namespace moorage::packs {
namespace {

constexpr size_t kMaxRecords = 4'000'000;
constexpr char kPart = '\0';  // after the path, and after the rest

std::string about(const std::string& path, const struct stat& status) {
  if (S_ISLNK(status.st_mode)) {
    std::string target(PATH_MAX, kPart);
    target.resize(static_cast<size_t>(
        base::check(readlink(path.c_str(), target.data(), target.size()), "read " + path)));
    return "l " + target;
  }
  const std::string mode = std::to_string(status.st_mode & 07777);
  if (S_ISDIR(status.st_mode)) return "d " + mode;
  if (!S_ISREG(status.st_mode)) return "other";
  return "f " + mode + " " + std::to_string(status.st_size) + " " +
         std::to_string(status.st_mtim.tv_sec) + "." + std::to_string(status.st_mtim.tv_nsec);
}

void list_below(const std::string& top, const std::string& below,
                std::vector<std::string>& records) {
  for (const std::string& name : base::list_directory(top + below)) {
    const std::string path = below + "/" + name;
    struct stat status {};
    base::check(lstat((top + path).c_str(), &status), "read " + top + path);
    if (records.size() == kMaxRecords)
      throw Error(Code::resource_exhausted, "a tree of more than 4 million entries");
    records.push_back(path + kPart + about(top + path, status));
    if (S_ISDIR(status.st_mode)) list_below(top, path, records);
  }
}

std::string_view path_of(const std::string& record) {
  return std::string_view(record).substr(0, record.find(kPart));
}

}  // namespace

std::vector<std::string> list_tree(const std::string& directory) {
  std::vector<std::string> records;
  list_below(directory, "", records);
  std::sort(records.begin(), records.end());
  return records;
}

std::string listing_text(const std::vector<std::string>& records) {
  std::string text;
  for (const std::string& record : records) text += record + kPart;
  return text;
}

std::vector<std::string> parse_listing(std::string_view text) {
  std::vector<std::string> records;
  while (!text.empty()) {
    const size_t path_end = text.find(kPart);
    const size_t end =
        path_end == std::string_view::npos ? path_end : text.find(kPart, path_end + 1);
    if (end == std::string_view::npos || records.size() == kMaxRecords)
      throw Error(Code::corrupted, "not the list of a tree");
    records.emplace_back(text.substr(0, end));
    text.remove_prefix(end + 1);
  }
  if (!std::is_sorted(records.begin(), records.end()))
    throw Error(Code::corrupted, "the list of a tree is not in order");
  return records;
}

size_t count_differences(const std::vector<std::string>& one,
                         const std::vector<std::string>& other) {
  std::vector<std::string> different;
  std::set_symmetric_difference(one.begin(), one.end(), other.begin(), other.end(),
                                std::back_inserter(different));
  // A changed entry is there twice, side by side.
  const auto end =
      std::unique(different.begin(), different.end(),
                  [](const auto& a, const auto& b) { return path_of(a) == path_of(b); });
  return static_cast<size_t>(end - different.begin());
}

}  // namespace moorage::packs
