// What a frozen copy of a layer is a copy of (layer_copy.h): of each file of the live layer its
// inode number and change time as they were. Kept in the copy as the file `copied`, which only the
// host sees; without it the next copy shares nothing with this one, and that is all.
//
// Format: "moorage copy 1\n", then depth first per entry its name, NUL, inode number, space, change
// time, newline; of a directory a slash before that, and behind it
// its entries, then an empty name, NUL, newline.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

namespace moorage::workspace {

struct RecordedDirectory;

struct RecordedEntry {
  ino_t inode = 0;
  int64_t changed_ns = 0;  // 0: it may have changed without that showing
  std::unique_ptr<RecordedDirectory> directory = {};
};

struct RecordedDirectory {
  std::map<std::string, RecordedEntry, std::less<>> entries;
};

std::string format_record(const RecordedDirectory& root);
std::optional<RecordedDirectory> parse_record(std::string_view text);  // nothing: not one of ours

}  // namespace moorage::workspace
