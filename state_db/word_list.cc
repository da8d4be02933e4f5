#include "state_db/word_list.h"

#include "base/error.h"
#include "base/parts.h"

namespace moorage::state_db {

namespace {

void append_word(std::string& bytes, const std::string& word) {
  if (word.find('\0') != std::string::npos) {
    throw Error(Code::invalid_argument,
                "a command, its arguments and its environment cannot hold NUL");
  }
  bytes.append(word).push_back('\0');
}

}  // namespace

std::string encode_words(const std::vector<std::string>& words) {
  std::string bytes;
  for (const std::string& word : words) append_word(bytes, word);
  return bytes;
}

std::vector<std::string> decode_words(std::string_view bytes) {
  if (!bytes.empty() && bytes.back() != '\0')
    throw Error(Code::corrupted, "a word list has no final NUL");
  std::vector<std::string> words;
  while (!bytes.empty()) words.emplace_back(base::take_until(bytes, '\0'));
  return words;
}

std::string encode_word_map(const std::map<std::string, std::string>& words) {
  std::string bytes;
  for (const auto& [name, value] : words) {
    append_word(bytes, name);
    append_word(bytes, value);
  }
  return bytes;
}

std::map<std::string, std::string> decode_word_map(std::string_view bytes) {
  const std::vector<std::string> words = decode_words(bytes);
  if (words.size() % 2 != 0) throw Error(Code::corrupted, "state.db: a name has no value");
  std::map<std::string, std::string> map;
  for (size_t i = 0; i < words.size(); i += 2) map[words[i]] = words[i + 1];
  return map;
}

}  // namespace moorage::state_db
