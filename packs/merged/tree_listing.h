// A list of the entries below a directory, to compare two copies of a tree on two machines: type,
// permissions, size and time of files, targets of links. Owners differ by nature and are not in it.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace moorage::packs {

// One record for each entry, sorted. Throws resource_exhausted for more than 4 million.
std::vector<std::string> list_tree(const std::string& directory);
std::string listing_text(const std::vector<std::string>& records);
// Throws corrupted.
std::vector<std::string> parse_listing(std::string_view text);
// How many paths are in one list only, or not as in the other. Both sorted.
size_t count_differences(const std::vector<std::string>& one,
                         const std::vector<std::string>& other);

}  // namespace moorage::packs
