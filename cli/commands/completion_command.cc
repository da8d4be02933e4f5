// `completion`: the shells' scripts, and what they and the generator of the manual pages read.
//   moorage completion bash|zsh|fish      the script
//   moorage completion words -- WORD...   candidates for the last word: word, tab, help
//   moorage completion commands           the tables of topics and commands, as JSON
// The candidates come from the table of commands and their options; names of workspaces, commands
// and repositories come from the daemon, which has 300 ms to answer. A failure means no candidates,
// never an error or output. Words that a shell would not take literally are left out, because other
// users choose names, too.
#include <algorithm>

#include "cli/aliases.h"
#include "cli/client/workspace_pages.h"
#include "cli/commands.h"
#include "cli/views/workspace_view.h"

namespace moorage::cli {
namespace {

// The completion scripts of the shells. Each calls `moorage completion words` for its candidates.

// COMP_WORDS is useless here: bash splits words at ':' and '=' and replaces only the part after the
// last one.
constexpr std::string_view kBash =
    R"(# bash completion for moorage; made by: moorage completion bash
_moorage() {
  local line=${COMP_LINE:0:COMP_POINT} words word before i IFS=$' \t\n'
  read -ra words <<<"$line"
  [[ $line == *[[:space:]] ]] && words+=("")
  mapfile -t COMPREPLY < <(moorage completion words -- "${words[@]:1}" 2>/dev/null)
  word=${words[${#words[@]} - 1]}
  before=${word%"${word##*[:=]}"}
  for i in "${!COMPREPLY[@]}"; do
    COMPREPLY[i]=${COMPREPLY[i]%%$'\t'*}
    COMPREPLY[i]=${COMPREPLY[i]#"$before"}
  done
  if [[ ${#COMPREPLY[@]} == 1 && ${COMPREPLY[0]} == *[:=] ]]; then compopt -o nospace 2>/dev/null; fi
}
complete -o default -F _moorage moorage
)";

constexpr std::string_view kZsh = R"(#compdef moorage
# zsh completion for moorage; made by: moorage completion zsh
_moorage() {
  local line word
  local -a lines found
  lines=("${(@f)$(moorage completion words -- "${(@)words[2,CURRENT]}" 2>/dev/null)}")
  for line in $lines; do
    word=${line%%$'\t'*}
    found+=("${word//:/\\:}:${line#*$'\t'}")
  done
  if (( $#found )); then _describe -V moorage found; else _files; fi
}
if [[ $funcstack[1] == _moorage ]]; then _moorage "$@"; else compdef _moorage moorage; fi
)";

constexpr std::string_view kFish =
    R"(# fish completion for moorage; made by: moorage completion fish
function __moorage_fill
    set -l typed (commandline -ct)
    set -l before (commandline -opc)
    set -g __moorage_found (moorage completion words -- $before[2..-1] "$typed" 2>/dev/null)
    test (count $__moorage_found) -gt 0
end
complete -c moorage -n __moorage_fill -f -k -a '$__moorage_found'
)";

constexpr std::pair<std::string_view, std::string_view> kScripts[] = {
    {"bash", kBash}, {"zsh", kZsh}, {"fish", kFish}};

using Words = std::vector<std::string>;

struct Candidate {
  std::string word;
  std::string help;  // one line, may be empty
};
using Candidates = std::vector<Candidate>;

constexpr int kPatience_ms = 300;
constexpr size_t kMaxAnswerBytes = 8 << 20;

// Null when the daemon does not answer at once.
Json ask(Context& context, const std::string& target) {
  try {
    const HttpResponse response = context.api().connection().exchange(
        {.target = target},
        {.silence_timeout_ms = kPatience_ms, .max_body_bytes = kMaxAnswerBytes});
    return response.ok() ? Json::parse(response.body) : Json();
  } catch (const Error&) {
    return {};  // completion cannot show a reason
  }
}

Candidates workspaces(Context& context, bool deleted) {
  Candidates found;
  const auto page = [&](const std::string& target) { return ask(context, target); };
  const std::vector<Json> all = all_workspaces(page, deleted).workspaces;
  const TypedNames typed(all);  // as in `ls`
  for (const Json& workspace : all) {
    if (deleted != (workspace.text("state") == "deleted")) continue;
    const std::string word =
        deleted && is_ours(workspace) ? workspace.text("name") : typed.of(workspace);
    found.push_back({word, workspace.text("repo.name")});
  }
  return found;
}

Candidates execs(Context& context) {
  Candidates found;
  for (const Json& exec : ask(context, "/v1/execs").items()) {
    std::string command;
    for (const std::string& word : exec.byte_list("argv"))
      command += (command.empty() ? "" : " ") + word;
    found.push_back({exec.text("id"), exec.text("state") + ": " + command});
  }
  return found;
}

Candidates repositories(Context& context, const char* field) {
  Candidates found;
  for (const Json& repo : ask(context, "/v1/repos").items())
    found.push_back({repo.text(field), repo.text("state")});
  return found;
}

Candidates backends(Context& context) {
  Candidates found;
  for (const Json& backend : ask(context, "/v1/info").items("backends"))
    found.push_back({backend.text("name"), backend.text("isolation")});
  return found;
}

// By the name of the option or argument, so new commands complete without a change here.
Candidates values_of(Context& context, const ToldOption& option) {
  if (option.is_argument) {
    const std::string& what =
        option.text.placeholder.empty() ? option.text.names : option.text.placeholder;
    if (what == "NAME" || what == "WORKSPACE") return workspaces(context, false);
    if (what == "DELETED") return workspaces(context, true);
    if (what == "EXEC") return execs(context);
    if (what == "REPO") return repositories(context, "name");
    if (what == "SOURCE") return repositories(context, "url");
    if (what == "SHELL") return {{"bash", ""}, {"fish", ""}, {"zsh", ""}};
    if (what == "FILE" || what == "FROM" || what == "TO") {
      Candidates found = workspaces(context, false);
      for (Candidate& candidate : found) candidate.word += ":";
      return found;
    }
    return {};
  }
  if (option.text.names == "--repo") return repositories(context, "url");
  if (option.text.names == "--backend") return backends(context);
  return {};
}

std::vector<ToldOption> options_of(const Command* command) {
  std::vector<ToldOption> options = global_options();
  if (command == nullptr) return options;
  const auto own = told_by([command](Options& told) { command->declare(told); });
  options.insert(options.begin(), own.begin(), own.end());
  return options;
}

Candidates command_names(const std::string& group) {
  Candidates found;
  for (const std::string_view name : names_in(group)) {
    const std::string full = (group.empty() ? "" : group + " ") + std::string(name);
    const auto known = [&](const Candidate& candidate) { return candidate.word == name; };
    if (std::any_of(found.begin(), found.end(), known)) continue;
    Candidate candidate{std::string(name), ""};
    for (const Command& command : all_commands()) {
      if (command.name == full) candidate.help = command.summary;
    }
    found.push_back(std::move(candidate));
  }
  return found;
}

// What `help` takes: a topic, a command, or the command of a group after its name.
Candidates help_words(const std::string& before) {
  if (before != "help") return command_names(before);
  Candidates found;
  for (const Topic& topic : all_topics())
    found.push_back({std::string(topic.name), std::string(topic.about)});
  for (Candidate& candidate : command_names("")) {
    if (find_topic(candidate.word) == nullptr) found.push_back(std::move(candidate));
  }
  return found;
}

Candidates option_names(const std::vector<ToldOption>& options) {
  Candidates found;
  for (const ToldOption& option : options) {
    if (!option.is_argument) found.push_back({names_of(option).back(), option.text.help});
  }
  return found;
}

// The argument that the next plain word belongs to; a repeating last argument takes all the rest.
const ToldOption* next_argument(const std::vector<ToldOption>& options, size_t given) {
  const ToldOption* last = nullptr;
  for (const ToldOption& option : options) {
    if (!option.is_argument) continue;
    last = &option;
    if (given-- == 0) return last;
  }
  return last != nullptr && last->repeats ? last : nullptr;
}

// Counts the words that are neither options nor their values.
size_t count_plain(const std::vector<ToldOption>& options, const Words& words) {
  size_t plain = 0;
  for (size_t i = 0; i < words.size(); ++i) {
    if (!words[i].starts_with("-")) {
      ++plain;
      continue;
    }
    const ToldOption* option = find_option(options, words[i]);
    if (option != nullptr && option->takes_value) ++i;
  }
  return plain;
}

Candidates all_candidates(Context& context, const Words& typed_before, const std::string& typed) {
  const Words before = without_aliases(typed_before);
  if (std::find(before.begin(), before.end(), "--") != before.end()) return {};
  const Command* command = find_command(before);
  const std::vector<ToldOption> options = options_of(command);
  if (!before.empty()) {
    const ToldOption* option = find_option(options, before.back());
    if (option != nullptr && option->takes_value) return values_of(context, *option);
  }
  if (typed.starts_with("--") && typed.find('=') != std::string::npos) {
    const std::string name = typed.substr(0, typed.find('='));
    const ToldOption* option = find_option(options, name);
    Candidates found = option != nullptr ? values_of(context, *option) : Candidates();
    for (Candidate& candidate : found) candidate.word.insert(0, name + "=");
    return found;
  }
  if (typed.starts_with("-")) return option_names(options);
  if (command == nullptr) {
    const Words plain = plain_words(before);
    return plain.size() < 2 ? command_names(plain.empty() ? "" : plain[0]) : Candidates();
  }
  const auto name_words =
      static_cast<size_t>(std::count(command->name.begin(), command->name.end(), ' ')) + 1;
  const ToldOption* argument = next_argument(options, count_plain(options, before) - name_words);
  if (argument == nullptr) return {};
  if (argument->text.names == "TOPIC") return help_words(plain_words(before).back());
  return values_of(context, *argument);
}

// The aliases that the words so far and the typed one begin; offered only where no command fits.
Candidates aliases(const Words& before, const std::string& typed) {
  const Words plain = plain_words(before);
  if (plain.size() > 1 || typed.empty()) return {};
  const std::string group = plain.empty() ? "" : plain[0] + " ";
  Candidates found;
  for (const Alias& alias : all_aliases()) {
    const std::string_view last = alias.typed.substr(alias.typed.rfind(' ') + 1);
    if (group + std::string(last) != alias.typed) continue;
    found.push_back({std::string(last), "moorage " + std::string(alias.name)});
  }
  return found;
}

bool is_literal(const std::string& word) {
  return std::all_of(word.begin(), word.end(), [](unsigned char c) {
    return std::isalnum(c) != 0 ||
           std::string_view("_-./:@+=,%").find(static_cast<char>(c)) != std::string_view::npos;
  });
}

// `words` follow the program's name; the last is the unfinished word, perhaps empty. Without
// candidates the shell offers files.
Candidates candidates(Context& context, const Words& words) {
  if (words.empty()) return {};
  const std::string& typed = words.back();
  const auto socket = std::find(words.begin(), words.end(), "--socket");
  if (words.end() - socket > 2) context.socket = *(socket + 1);
  const Words before(words.begin(), words.end() - 1);
  const auto fitting = [&](Candidates found) {
    std::erase_if(found, [&](const Candidate& candidate) {
      return candidate.word.empty() || !candidate.word.starts_with(typed) ||
             !is_literal(candidate.word);
    });
    return found;
  };
  Candidates found = fitting(all_candidates(context, before, typed));
  if (found.empty()) found = fitting(aliases(before, typed));
  for (Candidate& candidate : found) candidate.help = printable(candidate.help);
  return found;
}

std::vector<JsonObject> options_json(const std::vector<ToldOption>& options) {
  std::vector<JsonObject> objects;
  for (const ToldOption& option : options) {
    objects.push_back(JsonObject()
                          .add("names", option.text.names)
                          .add("placeholder", option.text.placeholder)
                          .add("help", option.text.help)
                          .add("argument", option.is_argument)
                          .add("repeats", option.repeats)
                          .add("required", option.required));
  }
  return objects;
}

void print_commands(Context& context) {
  std::vector<JsonObject> topics, commands;
  for (const Topic& topic : all_topics())
    topics.push_back(JsonObject().add("name", topic.name).add("about", topic.about));
  for (const Command& command : all_commands()) {
    const auto told = told_by([&](Options& options) { command.declare(options); });
    std::vector<std::string> also;
    for (const std::string_view typed : aliases_of(command.name)) also.emplace_back(typed);
    commands.push_back(JsonObject()
                           .add("name", command.name)
                           .add("aliases", also)
                           .add("topic", command.topic)
                           .add("summary", command.summary)
                           .add("example", command.example)
                           .add("options", options_json(told)));
  }
  context.print_json(JsonObject()
                         .add("global", options_json(global_options()))
                         .add("topics", topics)
                         .add("commands", commands));
}

void print_words(Context& context) {
  std::string text;
  for (const Candidate& candidate : candidates(context, context.command)) {
    text += candidate.word + (candidate.help.empty() ? "" : "\t" + candidate.help) + "\n";
  }
  context.print(text);
}

void complete(Context& context, const std::string& what) {
  if (what == "words") return print_words(context);
  if (what == "commands") return print_commands(context);
  for (const auto& [shell, script] : kScripts) {
    if (what == shell) return context.print(script);
  }
  throw Error(Code::invalid_argument, "no completion for " + what, "use bash, zsh or fish");
}

}  // namespace

Action completion_command(Options& options) {
  return run_with_argument(options, {"SHELL", "", "bash, zsh or fish"}, complete);
}

}  // namespace moorage::cli
