// The source state of a frozen copy of a layer (copy.h): the inode number and change time of
// each file of the live layer. Stored in the copy as the file `copied`, which only the host sees;
// without it the next copy merely shares nothing with this one.
//
// Format: "moorage copy 1\n", then depth first, for each entry: its name, NUL, inode number, space,
// change time, newline. A directory has a slash before the newline; its entries follow, then an
// empty name, NUL, newline.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

namespace moorage::layers {

struct RecordedDirectory;

struct RecordedEntry {
  ino_t inode = 0;
  int64_t changed_ns = 0;  // 0: it may have changed unnoticed
  std::unique_ptr<RecordedDirectory> directory = {};
};

struct RecordedDirectory {
  std::map<std::string, RecordedEntry, std::less<>> entries;
};

std::string format_record(const RecordedDirectory& root);
std::optional<RecordedDirectory> parse_record(std::string_view text);  // nullopt: another format

}  // namespace moorage::layers
