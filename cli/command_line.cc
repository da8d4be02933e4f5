#include "cli/command_line.h"

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <algorithm>
#include <cstdlib>
#include <map>

#include "base/error.h"
#include "base/fd.h"
#include "cli/commands.h"
#include "cli/context.h"
#include "cli/text.h"

namespace moorage::cli {
namespace {

using base::Code;
using base::Error;

constexpr const char* kDefaultSocket = "/run/moorage/mooraged.sock";
constexpr const char* kAbout =
    "Moorage keeps the work of long-running agents safe while the machines under it come and go.";

// The first words that are not options: what the user wants, known before anything is parsed, so
// that only one command declares its options.
const Command* find_command(const std::vector<std::string>& words) {
  std::string name;
  for (size_t i = 0; i < words.size() && words[i] != "--"; ++i) {
    if (words[i] == "--socket") {
      ++i;
    } else if (!words[i].starts_with("-")) {
      name += (name.empty() ? "" : " ") + words[i];
      for (const Command& command : all_commands()) {
        if (command.name == name) return &command;
      }
      if (name.find(' ') != std::string::npos) break;
    }
  }
  return nullptr;
}

// Splits off what follows the first "--" when the command takes it as the sandbox's.
std::vector<std::string> take_sandbox_command(std::vector<std::string>& words,
                                              const Command* command) {
  std::vector<std::string> rest;
  if (command == nullptr || !command->runs_command) return rest;
  const auto mark = std::find(words.begin(), words.end(), "--");
  if (mark == words.end()) return rest;
  rest.assign(mark + 1, words.end());
  words.erase(mark, words.end());
  return rest;
}

void add_global_options(CLI::App& app, Context& context) {
  app.add_option("--socket", context.socket, "The daemon's socket")
      ->type_name("PATH")
      ->envname("MOORAGE_SOCKET");
  app.add_flag("--json", context.json, "Print the API's JSON");
}

class CommandLine {
 public:
  CommandLine(Context& context, const Command* chosen) : app_(kAbout, "moorage") {
    app_.set_help_flag("-h,--help", "Print this help");
    app_.get_formatter()->column_width(26);
    add_global_options(app_, context);
    app_.require_subcommand(0, 1);
    app_.footer(
        "Example:\n  moorage create --repo https://github.com/acme/shop --name auth\n"
        "  moorage exec auth -- make test\n\nmoorage COMMAND --help tells more.");
    // When one is named the others are not built: it is most of the time that a short command
    // takes.
    for (const Command& command : all_commands()) {
      if (chosen == nullptr || &command == chosen) add_command(command, &command == chosen);
    }
  }

  // The chosen command's action, or nothing when there was no command.
  Action parse(std::vector<std::string> words) {
    std::reverse(words.begin(), words.end());  // as CLI11 wants them
    app_.parse(words);
    return action_;
  }
  int explain(const CLI::ParseError& error, const Context& context) const;
  std::string help() const { return app_.help(); }

 private:
  CLI::App& parent_of(std::string_view& name) {
    const size_t space = name.find(' ');
    if (space == std::string_view::npos) return app_;
    const std::string group(name.substr(0, space));
    name.remove_prefix(space + 1);
    if (!groups_.contains(group)) {
      const char* about = group == "repo" ? "Cached repositories: add, ls, fetch, rm"
                                          : "The daemon's settings: show";
      groups_[group] = app_.add_subcommand(group, about);
      groups_[group]->require_subcommand(1)->fallthrough()->footer("moorage " + group +
                                                                   " COMMAND --help tells more.");
    }
    return *groups_[group];
  }

  void add_command(const Command& command, bool is_chosen) {
    std::string_view name = command.name;
    CLI::App& parent = parent_of(name);
    CLI::App* app = parent.add_subcommand(std::string(name), std::string(command.summary));
    app->fallthrough();
    if (&parent != &app_) parent.group(std::string(command.section));
    app->group(&parent == &app_ ? std::string(command.section) : "Commands");
    if (!is_chosen) return;
    chosen_ = app;
    chosen_name_ = command.name;
    Options options(*app);
    action_ = command.declare(options);
    std::string footer = "Example:\n  ";
    for (const char c : command.example) footer += c == '\n' ? "\n  " : std::string(1, c);
    app->footer(footer);
  }

  CLI::App app_;
  CLI::App* chosen_ = nullptr;
  std::string chosen_name_;
  std::map<std::string, CLI::App*> groups_;
  Action action_;
};

int CommandLine::explain(const CLI::ParseError& error, const Context& context) const {
  const bool wants_help = error.get_exit_code() == static_cast<int>(CLI::ExitCodes::Success);
  if (wants_help) {
    const CLI::App* app = chosen_;
    const auto parsed_group = std::find_if(
        groups_.begin(), groups_.end(), [](const auto& group) { return group.second->parsed(); });
    const bool in_group = parsed_group != groups_.end();
    if (app == nullptr && in_group) app = parsed_group->second;
    const bool nested = in_group && app != parsed_group->second;
    const std::string before = nested ? "moorage " + parsed_group->first : "moorage";
    context.print(app != nullptr ? app->help(before) : app_.help());
    return 0;
  }
  const std::string command = chosen_name_.empty() ? "" : " " + chosen_name_;
  context.note(error.what());
  base::write_all(context.streams.err, "  hint: moorage" + command + " --help\n");
  return kFailed;
}

void report(const Error& error, const Streams& streams) {
  std::string message = error.message();
  // Messages of git and of the kernel may have lines of their own: keep them, indented.
  std::string text = "moorage: ";
  for (size_t at = 0, end; at <= message.size(); at = end + 1) {
    end = std::min(message.find('\n', at), message.size());
    text += (at == 0 ? "" : "         ") + printable(message.substr(at, end - at)) + "\n";
  }
  if (!error.hint().empty()) text += "  hint: " + printable(error.hint()) + "\n";
  base::write_all(streams.err, text);
}

int run(Context& context, std::vector<std::string> words) {
  if (words == std::vector<std::string>{"--version"}) words = {"version"};  // as others have it
  const Command* chosen = find_command(words);
  const int failed = chosen != nullptr && chosen->runs_command ? kFailedToRun : kFailed;
  context.command = take_sandbox_command(words, chosen);
  CommandLine line(context, chosen);
  try {
    const Action action = line.parse(std::move(words));
    if (context.socket.empty()) context.socket = kDefaultSocket;
    if (action) return action(context);
    context.print(line.help());
    return 0;
  } catch (const CLI::ParseError& error) {
    return line.explain(error, context) == 0 ? 0 : failed;
  } catch (const Error& error) {
    report(error, context.streams);
  } catch (const std::exception& error) {
    report(Error(Code::internal, error.what(), "this is a bug of moorage"), context.streams);
  }
  return failed;
}

}  // namespace

int run_command_line(const std::vector<std::string>& words, const Streams& streams) {
  try {
    base::fill_standard_fds();
    Context context(streams);
    return run(context, words);
  } catch (const std::exception&) {
    return kFailed;  // not even standard error can be written
  }
}

}  // namespace moorage::cli
