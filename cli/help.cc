// The pages of `moorage help`: the first page, the commands of a topic, the commands of a group.
// The help of one command comes from its options (command_line.cc).
#include <algorithm>

#include "base/spelling.h"
#include "cli/aliases.h"
#include "cli/commands.h"

namespace moorage::cli {
namespace {

std::string command_line_of(const Command& command) {
  return label_line(std::string(command.name), std::string(command.summary), 15);
}

// Two to a line, which a terminal of 80 columns has room for.
std::string topic_list() {
  std::string text;
  const auto topics = all_topics();
  for (size_t i = 0; i < topics.size(); ++i) {
    std::string entry = label_line(std::string(topics[i].name), std::string(topics[i].about), 14);
    entry.pop_back();
    const bool left = i % 2 == 0;
    if (left) entry.resize(std::max<size_t>(entry.size(), 40), ' ');
    text += entry + (left && i + 1 < topics.size() ? "" : "\n");
  }
  return text;
}

std::string topic_page(const Topic& topic) {
  std::string text =
      "Topic: " + std::string(topic.name) + " (" + std::string(topic.about) + ")\n\n";
  for (const Command& command : all_commands()) {
    if (command.topic == topic.name) text += command_line_of(command);
  }
  return text + "\nOptions and an example of one command: moorage COMMAND --help\n";
}

std::string help_on(const std::vector<std::string>& typed) {
  const auto words = without_aliases(typed);
  if (const Topic* topic = find_topic(words[0]); topic != nullptr && words.size() == 1)
    return topic_page(*topic);
  if (const Command* command = find_command(words)) return help_of(*command);
  const std::string& word = words[0];
  if (!names_in(word).empty()) return group_page(word);
  if (const auto way = way_without(word))
    throw Error(Code::invalid_argument, "there is no command '" + word + "'", *way);
  auto meant = meant_command("", word);
  std::vector<std::string_view> topics;
  for (const Topic& topic : all_topics()) topics.push_back(topic.name);
  if (!meant) meant = base::nearest_spelling(word, topics);
  throw Error(Code::invalid_argument, "there is no topic or command '" + word + "'",
              meant ? "did you mean: moorage help " + *meant : "moorage help lists the topics");
}

constexpr struct {
  std::string_view name;
  std::string_view about;
} kGroups[] = {
    {"lease", "A lease makes its holder the only one who may change a workspace."},
    {"net", "Which hosts the commands of a workspace may reach."},
    {"credential", "Secrets that workspaces use without seeing them."},
    {"repo", "The cache of repositories."},
    {"config", "The daemon's settings."},
    {"rescue",
     "When state.db is damaged, missing or of a newer version, the daemon changes nothing and\n"
     "starts in rescue mode: moorage ls lists what is on the disk, moorage doctor says what is\n"
     "wrong, and moorage rescue export saves a workspace to a file."}};

std::string about_group(const std::string& group) {
  for (const auto& [name, about] : kGroups) {
    if (name == group) return std::string(about) + "\n\n";
  }
  return {};
}

}  // namespace

std::string first_page() {
  std::string text =
      "Moorage keeps the work of coding agents safe while machines come and go.\n"
      "Usage: moorage COMMAND [ARGUMENTS]; help with one: moorage COMMAND --help\n\n";
  for (int place = 1;; ++place) {
    const auto commands = all_commands();
    const auto found = std::find_if(commands.begin(), commands.end(), [&](const Command& command) {
      return command.everyday == place;
    });
    if (found == commands.end()) break;
    text += command_line_of(*found);
  }
  return text + "\nMore commands by topic: moorage help TOPIC\n" + topic_list() +
         "\nOptions of all: --json, --lease LEASE, --socket PATH\n";
}

std::string group_page(const std::string& group) {
  std::string text = about_group(group) + "Usage: moorage " + group + " COMMAND [ARGUMENTS]\n\n";
  std::string examples;
  for (const Command& command : all_commands()) {
    if (!command.name.starts_with(group + " ")) continue;
    text += command_line_of(command);
    examples.append("  ").append(command.example.substr(0, command.example.find('\n'))) += "\n";
  }
  return text + "\nExample:\n" + examples + "\nOptions of one command: moorage " + group +
         " COMMAND --help\n";
}

Action help_command(Options& options) {
  auto words = std::make_shared<std::vector<std::string>>();
  options.arguments({"TOPIC", "", "A topic or a command; default: the first page"}, *words);
  return [words](Context& context) {
    context.print(words->empty() ? first_page() : help_on(*words));
    return 0;
  };
}

}  // namespace moorage::cli
