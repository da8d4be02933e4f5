#include "base/spelling.h"
#include "cli/commands.h"

namespace moorage::cli {

using Words = std::vector<std::string>;

Words plain_words(const Words& words) {
  Words plain;
  for (size_t i = 0; i < words.size() && words[i] != "--"; ++i) {
    if (words[i] == "--socket" || words[i] == "--lease") {
      ++i;
    } else if (!words[i].starts_with("-")) {
      plain.push_back(words[i]);
    }
  }
  return plain;
}

const Command* find_command(const Words& words) {
  std::string name;
  for (const std::string& word : plain_words(words)) {
    name += (name.empty() ? "" : " ") + word;
    for (const Command& command : all_commands()) {
      if (command.name == name) return &command;
    }
    if (name.find(' ') != std::string::npos) break;
  }
  return nullptr;
}

const Topic* find_topic(std::string_view name) {
  for (const Topic& topic : all_topics()) {
    if (topic.name == name) return &topic;
  }
  return nullptr;
}

std::vector<std::string_view> names_in(const std::string& group) {
  std::vector<std::string_view> names;
  for (const Command& command : all_commands()) {
    const size_t space = command.name.find(' ');
    const bool grouped = space != std::string_view::npos;
    if (group.empty()) names.push_back(command.name.substr(0, space));
    if (grouped && command.name.substr(0, space) == group)
      names.push_back(command.name.substr(space + 1));
  }
  return names;
}

std::optional<std::string> meant_command(const std::string& group, const std::string& typed) {
  if (typed.empty()) return std::nullopt;
  const std::string before = group.empty() ? "" : group + " ";
  for (const Command& command : all_commands()) {
    if (!command.name.starts_with(before)) continue;
    const std::string_view last_word = command.name.substr(command.name.rfind(' ') + 1);
    std::string known(" ");
    known.append(last_word).append(" ").append(command.also_known).append(" ");
    if (known.find(" " + typed + " ") != std::string::npos) return std::string(command.name);
  }
  const auto near = base::nearest_spelling(typed, names_in(group));
  return near ? std::optional(before + *near) : std::nullopt;
}

}  // namespace moorage::cli
