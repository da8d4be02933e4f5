// Lists of words as one blob: each followed by NUL. A word may contain any byte but NUL, as in
// execve(2); a word with NUL throws invalid_argument.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace moorage::state_db {

std::string encode_words(const std::vector<std::string>& words);
std::vector<std::string> decode_words(std::string_view bytes);  // throws corrupted
// Name and value alternate.
std::string encode_word_map(const std::map<std::string, std::string>& words);
std::map<std::string, std::string> decode_word_map(std::string_view bytes);

}  // namespace moorage::state_db
