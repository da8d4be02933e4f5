#include "cli/command_line.h"

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <algorithm>
#include <cstdlib>
#include <map>

#include "base/error.h"
#include "base/fd.h"
#include "base/nearest.h"
#include "cli/commands.h"
#include "cli/context.h"
#include "cli/kept_leases.h"
#include "cli/text.h"

namespace moorage::cli {
namespace {

using base::Code;
using base::Error;

using Words = std::vector<std::string>;

constexpr const char* kDefaultSocket = "/run/moorage/mooraged.sock";
constexpr const char* kAbout =
    "Moorage keeps the work of long-running agents safe while the machines under it come and go.";

void refuse_unknown_command(const Words& words) {
  const Words plain = plain_words(words);
  if (plain.empty()) return;
  const bool in_group = !names_in(plain[0]).empty();
  if (in_group && plain.size() == 1) return;  // the parser says what is missing, or helps
  const std::string group = in_group ? plain[0] : "", before = in_group ? group + " " : "";
  const std::string& typed = plain[in_group ? 1 : 0];
  const auto meant = base::nearest(typed, names_in(group));
  throw Error(Code::invalid_argument, "there is no command '" + before + typed + "'",
              (meant ? "did you mean: moorage " + before + *meant + "   " : "") + "moorage " +
                  before + "--help lists them");
}

// "--name=" would take the next word for its value.
void refuse_missing_values(const Words& words) {
  for (const std::string& word : words) {
    if (word == "--") return;
    if (word.starts_with("--") && word.find('=') == word.size() - 1)
      throw Error(Code::invalid_argument, word.substr(0, word.size() - 1) + " needs a value");
  }
}

// Splits off what follows the first "--" when the command takes it as the sandbox's.
Words take_sandbox_command(Words& words, const Command* command) {
  Words rest;
  if (command == nullptr || !command->runs_command) return rest;
  const auto mark = std::find(words.begin(), words.end(), "--");
  if (mark == words.end()) return rest;
  rest.assign(mark + 1, words.end());
  words.erase(mark, words.end());
  return rest;
}

constexpr const char* kHelp = "Print this help";

struct Globals {
  std::string& socket;
  std::string& lease;
  bool& json;
};

void declare_global_options(Options& options, const Globals& to) {
  options.value({"--socket", "PATH", "The daemon's socket"}, to.socket);
  options.value({"--lease", "LEASE", "The lease to make changes under: 5 or ws_12.5"}, to.lease);
  options.flag({"--json", "", "Print the API's JSON"}, to.json);
}

void add_global_options(CLI::App& app, Context& context) {
  Options options(app);
  declare_global_options(options, {context.socket, context.lease, context.json});
  app.get_option("--socket")->envname("MOORAGE_SOCKET");
}

std::string group_examples(const std::string& group) {
  std::string text = "Example:\n";
  for (const Command& command : all_commands()) {
    const std::string_view example = command.example.substr(0, command.example.find('\n'));
    if (command.name.starts_with(group + " ")) text.append("  ").append(example).append("\n");
  }
  return text;
}

class CommandLine {
 public:
  CommandLine(Context& context, const Command* chosen) : app_(kAbout, "moorage") {
    app_.set_help_flag("-h,--help", kHelp);
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
  Action parse(Words words) {
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
                          : group == "lease"
                              ? "Who may change a workspace: acquire, show, keep, run"
                              : "The daemon's settings: show";
      groups_[group] = app_.add_subcommand(group, about);
      groups_[group]->require_subcommand(1)->fallthrough()->footer(
          group_examples(group) + "\nmoorage " + group + " COMMAND --help tells more.");
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

void report(const Error& error, const Context& context) {
  if (context.json) {
    JsonObject json;
    json.add("code", base::code_name(error.code()))
        .add("message", printable_lines(error.message()))
        .add("hint", printable_lines(error.hint()));
    base::write_all(context.streams.err, json.str() + "\n");
    return;
  }
  // Messages of git and of the kernel may have lines of their own: keep them, indented.
  const std::string& message = error.message();
  std::string text = "moorage: ";
  for (size_t at = 0, end; at <= message.size(); at = end + 1) {
    end = std::min(message.find('\n', at), message.size());
    text += (at == 0 ? "" : "         ") + printable(message.substr(at, end - at)) + "\n";
  }
  if (!error.hint().empty()) text += "  hint: " + printable(error.hint()) + "\n";
  base::write_all(context.streams.err, text);
}

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
  report(Error(Code::invalid_argument, error.what(), "moorage" + command + " --help"), context);
  return kFailed;
}

// Into the environment, where every connection looks, and every program that we start.
void find_lease(const Context& context) {
  const char* given = std::getenv("MOORAGE_LEASE");
  const std::string named = !context.lease.empty() ? context.lease : given ? given : "";
  if (named.empty()) return;
  if (std::count(context.lease.begin(), context.lease.end(), '.') > 1) {
    throw Error(Code::invalid_argument,
                "--lease takes no secret: everybody can read a command line",
                "give the lease's number, or put the secret into MOORAGE_LEASE");
  }
  const std::string header = KeptLeases(context.socket).header(named);
  base::check(setenv("MOORAGE_LEASE", header.c_str(), 1), "set MOORAGE_LEASE");
}

int run(Context& context, Words words) {
  if (words == Words{"--version"}) words = {"version"};  // as others have it
  const Command* chosen = find_command(words);
  const int failed = chosen != nullptr && chosen->runs_command ? kFailedToRun : kFailed;
  context.command = take_sandbox_command(words, chosen);
  // Known before the parser has it: what it refuses is told as JSON, too.
  context.json = std::find(words.begin(), words.end(), "--json") != words.end();
  CommandLine line(context, chosen);
  try {
    if (chosen == nullptr) refuse_unknown_command(words);
    refuse_missing_values(words);
    const Action action = line.parse(std::move(words));
    if (context.socket.empty()) context.socket = kDefaultSocket;
    find_lease(context);
    if (action) return action(context);
    context.print(line.help());
    return 0;
  } catch (const CLI::ParseError& error) {
    return line.explain(error, context) == 0 ? 0 : failed;
  } catch (const Error& error) {
    report(error, context);
  } catch (const std::exception& error) {
    report(Error(Code::internal, error.what(), "this is a bug of moorage"), context);
  }
  return failed;
}

}  // namespace

std::vector<ToldOption> global_options() {
  std::string socket;
  std::string lease;
  bool json = false;
  const Globals globals{socket, lease, json};
  auto told = told_by([&](Options& options) { declare_global_options(options, globals); });
  told.insert(told.begin(), ToldOption{.text = {"-h,--help", "", kHelp}});
  return told;
}

int run_command_line(const Words& words, const Streams& streams) {
  try {
    base::fill_standard_fds();
    Context context(streams);
    return run(context, words);
  } catch (const std::exception&) {
    return kFailed;  // not even standard error can be written
  }
}

}  // namespace moorage::cli
