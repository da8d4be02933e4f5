// `completion`: the shells' scripts, and what they and the generator of the manual pages read.
//   moorage completion bash|zsh|fish      the script
//   moorage completion words -- WORD...   candidates for the last word, each with a tab and its
//   help moorage completion commands           the tables of topics and commands, as JSON
#include "base/error.h"
#include "cli/client/context.h"
#include "cli/commands.h"
#include "cli/commands/completion.h"

namespace moorage::cli {
namespace {

std::string array_of(const std::vector<std::string>& objects) {
  std::string text;
  for (const std::string& object : objects) text += (text.empty() ? "" : ",") + object;
  return "[" + text + "]";
}

std::string options_json(const std::vector<ToldOption>& options) {
  std::vector<std::string> objects;
  for (const ToldOption& option : options) {
    objects.push_back(JsonObject()
                          .add("names", option.text.names)
                          .add("placeholder", option.text.placeholder)
                          .add("help", option.text.help)
                          .add("argument", option.is_argument)
                          .add("repeats", option.repeats)
                          .add("required", option.required)
                          .str());
  }
  return array_of(objects);
}

void print_commands(Context& context) {
  std::vector<std::string> topics, objects;
  for (const Topic& topic : all_topics())
    topics.push_back(JsonObject().add("name", topic.name).add("about", topic.about).str());
  for (const Command& command : all_commands()) {
    const auto told = told_by([&](Options& options) { command.declare(options); });
    std::string object = JsonObject()
                             .add("name", command.name)
                             .add("topic", command.topic)
                             .add("summary", command.summary)
                             .add("example", command.example)
                             .str();
    object.insert(object.size() - 1, ",\"options\":" + options_json(told));
    objects.push_back(std::move(object));
  }
  context.print("{\"global\":" + options_json(global_options()) +
                ",\"topics\":" + array_of(topics) + ",\"commands\":" + array_of(objects) + "}\n");
}

void print_words(Context& context) {
  std::string text;
  for (const Candidate& candidate : candidates(context, context.command)) {
    text += candidate.word + (candidate.help.empty() ? "" : "\t" + candidate.help) + "\n";
  }
  context.print(text);
}

}  // namespace

Action completion_command(Options& options) {
  auto what = std::make_shared<std::string>();
  options.argument({"SHELL", "", "bash, zsh or fish"}, *what);
  return [what](Context& context) {
    if (*what == "words") {
      print_words(context);
    } else if (*what == "commands") {
      print_commands(context);
    } else if (const auto script = completion_script(*what); !script.empty()) {
      context.print(script);
    } else {
      throw Error(Code::invalid_argument, "no completion for " + *what, "use bash, zsh or fish");
    }
    return 0;
  };
}

}  // namespace moorage::cli
