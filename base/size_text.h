// Sizes and counts for people: "412M", "1.2G", plain bytes below 1 KiB; "1 file", "37 files", "1
// entry", "2 entries".
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace moorage::base {

std::string size_text(uint64_t bytes);
// A number of bytes as people write it, in the CLI and in the configuration: "8G", "8 GiB", "8gb",
// "1.5G", "4096"; a unit is a power of 1024. nullopt: not a size. UINT64_MAX: too large.
std::optional<uint64_t> parse_size(std::string_view text);
// As the CLI accepts it, without rounding: "8G", "1536M", "1000001".
std::string exact_size_text(uint64_t bytes);
// The shortest text that parses to the same number: 0.1, 2.5, 1234567.
std::string number_text(double value);
std::string count_text(uint64_t n, std::string_view noun);
// The verb of a sentence about so many, given as for several: "differ" -> "differs" for one.
std::string verb_text(uint64_t n, std::string_view verb);

}  // namespace moorage::base
