// Lists of words as one blob: each followed by NUL. Any byte but NUL may be in a word, which is
// what execve(2) allows too; a word with NUL throws invalid_argument.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace moorage::state_db {

std::string encode_words(const std::vector<std::string>& words);
std::vector<std::string> decode_words(std::string_view bytes);  // throws corrupted
// Name and value in turn.
std::string encode_word_map(const std::map<std::string, std::string>& words);
std::map<std::string, std::string> decode_word_map(std::string_view bytes);

}  // namespace moorage::state_db
