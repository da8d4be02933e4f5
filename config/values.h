// Converts texts to values and back. Parsers throw invalid_argument with the problem and the
// allowed values; callers add the setting's name. Printers produce input for the parsers.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace moorage::config {

inline constexpr std::string_view kNameCharacters =
    "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-";

struct Range {
  uint64_t least = 0;
  uint64_t most = UINT64_MAX;
  bool or_zero = false;  // 0: no limit
};

uint64_t parse_integer(std::string_view text, const Range& range);
double parse_real(std::string_view text, double least, double most);
bool parse_flag(std::string_view text);                            // true, false
uint64_t parse_bytes(std::string_view text, const Range& range);   // base/size_text.h
int64_t parse_seconds(std::string_view text, const Range& range);  // 90, 90s, 5m, 2h, 7d
std::string parse_path(std::string_view text);                     // absolute, without . and ..
std::string parse_host(std::string_view text);                     // git.example.com, .example.com
std::string parse_resolver(std::string_view text);       // 192.0.2.53, 192.0.2.53:5353, [::1]:53
std::string parse_address_range(std::string_view text);  // 10.0.0.0/8
std::string parse_http_proxy(std::string_view text);     // http://host:port, or empty
std::string parse_proxy(std::string_view text);          // http://host:port, or empty
std::string parse_identity(std::string_view text);       // a name or address for commits, or empty

std::string parse_word(const std::string& text);   // lower case letters, digits, - and _
std::string parse_runtime(std::string_view text);  // kNameCharacters, or empty

std::string print_bytes(uint64_t bytes);  // 4GiB if exact

// Ids of the host's users and groups. A number is an id even if the host has no such user or group.
// Throw invalid_argument for an unknown name, io if the lookup fails.
uint32_t user_id(const std::string& name);
uint32_t group_id(const std::string& name);

}  // namespace moorage::config
