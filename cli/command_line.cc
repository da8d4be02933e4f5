#include "cli/command_line.h"

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <algorithm>
#include <cstdlib>

#include "base/os/fd.h"
#include "base/spelling.h"
#include "cli/aliases.h"
#include "cli/client/kept_leases.h"
#include "cli/commands.h"

namespace moorage::cli {
namespace {

using Words = std::vector<std::string>;

constexpr const char* kDefaultSocket = "/run/moorage/mooraged.sock";

// For words that name no command; returns where they ask for help, or are options alone.
void refuse_unknown_command(const Words& words, bool wants_help) {
  const Words plain = plain_words(words);
  if (plain.empty()) return;
  const bool in_group = !names_in(plain[0]).empty();
  const std::string group = in_group ? plain[0] : "", before = in_group ? group + " " : "";
  const std::string page = "moorage " + before + "--help lists the commands";
  if (in_group && plain.size() == 1) {
    if (wants_help) return;
    throw Error(Code::invalid_argument, "which command of moorage " + group + "?", page);
  }
  const std::string& typed = plain[in_group ? 1 : 0];
  if (const auto way = way_without(before + typed, plain.size() > 1 ? plain[1] : ""))
    throw Error(Code::invalid_argument, "there is no command '" + before + typed + "'", *way);
  const auto meant = meant_command(group, typed);
  throw Error(Code::invalid_argument, "there is no command '" + before + typed + "'",
              meant ? "did you mean: moorage " + *meant : page);
}

// "--name=" would take the next word as its value.
void refuse_missing_values(const Words& words) {
  for (const std::string& word : words) {
    if (word == "--") return;
    if (word.starts_with("--") && word.find('=') == word.size() - 1)
      throw Error(Code::invalid_argument, word.substr(0, word.size() - 1) + " needs a value");
  }
}

// How many words an option of moorage takes, with its value; 0: it is not one. "-tn" is two.
size_t words_of_option(const std::vector<ToldOption>& options, const std::string& word) {
  if (word.starts_with("--")) {
    const std::string name = word.substr(0, word.find('='));
    const ToldOption* option = find_option(options, name);
    if (option == nullptr) return 0;
    return option->takes_value && name.size() == word.size() ? 2 : 1;
  }
  for (size_t i = 1; i < word.size(); ++i) {
    const ToldOption* option = find_option(options, std::string{'-', word[i]});
    if (option == nullptr) return 0;
    if (option->takes_value) return i + 1 == word.size() ? 2 : 1;
  }
  return word.size() > 1 ? 1 : 0;
}

// The place of the first word that the sandbox runs; words.size() when there is none, or when an
// option before it is unknown: the parser refuses that one.
size_t find_sandbox_command(const Words& words, const std::vector<ToldOption>& options,
                            size_t words_before) {
  for (size_t i = 0; i < words.size();) {
    if (!words[i].starts_with("-")) {
      if (words_before-- == 0) return i;
      ++i;
      continue;
    }
    const size_t taken = words_of_option(options, words[i]);
    if (taken == 0) break;
    i += taken;
  }
  return words.size();
}

std::string line_of(Words words, size_t mark) {
  words.insert(words.begin() + static_cast<int64_t>(mark), "--");
  return "moorage " + join_command(words);
}

// Puts "--" before the command that the sandbox runs, where a person left it out. An option of
// moorage after the command's first word might be meant for either, so it is refused.
void mark_sandbox_command(Words& words, const Command* command) {
  if (command == nullptr || !command->runs_command) return;
  if (command->example.find(" -- ") == std::string_view::npos) return;  // takes no command
  if (std::find(words.begin(), words.end(), "--") != words.end()) return;
  auto options = told_by([&](Options& told) { command->declare(told); });
  const auto arguments = std::count_if(options.begin(), options.end(), [](const ToldOption& told) {
    return told.is_argument && !told.repeats;
  });
  const auto names = 1 + std::count(command->name.begin(), command->name.end(), ' ');
  for (ToldOption& global : global_options()) options.push_back(std::move(global));
  const size_t begin = find_sandbox_command(words, options, static_cast<size_t>(names + arguments));
  if (begin == words.size()) return;
  for (size_t i = begin + 1; i < words.size(); ++i) {
    if (!words[i].starts_with("-") || words_of_option(options, words[i]) == 0) continue;
    throw Error(
        Code::invalid_argument,
        words[i] + " stands after the command, and moorage " + std::string(command->name) +
            " has that option, too",
        "for the command: " + line_of(words, begin) + "; otherwise put it before " + words[begin]);
  }
  words.insert(words.begin() + static_cast<int64_t>(begin), "--");
}

// Splits off the words after the first "--" when the command runs them.
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

void declare_global_options(Options& options, Context& context) {
  options.value({"--socket", "PATH", "The daemon's socket"}, context.socket);
  options.value({"--lease", "LEASE", "Use this lease for changes: 5 or ws_12.5"}, context.lease);
  options.flag({"--json", "", "Print the API's JSON"}, context.json);
}

class CommandLine {
 public:
  // Only the named command is built: building all takes most of the time of a short command.
  CommandLine(Context& context, const Command* command) : app_("", "moorage"), command_(command) {
    app_.set_help_flag("-h,--help", kHelp);
    app_.get_formatter()->column_width(26);
    Options globals(app_);
    declare_global_options(globals, context);
    app_.get_option("--socket")->envname("MOORAGE_SOCKET");
    app_.require_subcommand(0, 1);
    if (command_ != nullptr) add_command();
  }

  // The command's action, or nothing when there is no command.
  Action parse(Words words) {
    std::reverse(words.begin(), words.end());  // the order that CLI11 takes
    app_.parse(words);
    return action_;
  }
  Error explain(const CLI::ParseError& error) const;
  std::string help() const { return chosen_ != nullptr ? chosen_->help(before_) : first_page(); }

 private:
  void add_command() {
    CLI::App* parent = &app_;
    std::string_view name = command_->name;
    if (const size_t space = name.find(' '); space != std::string_view::npos) {
      parent = app_.add_subcommand(std::string(name.substr(0, space)));
      parent->require_subcommand(1)->fallthrough();
      before_.append(" ").append(name.substr(0, space));
      name.remove_prefix(space + 1);
    }
    chosen_ = parent->add_subcommand(std::string(name), std::string(command_->summary));
    chosen_->fallthrough();
    Options options(*chosen_);
    action_ = command_->declare(options);
    told_ = options.told();
    std::string footer;
    for (const std::string_view typed : aliases_of(command_->name))
      footer.append(footer.empty() ? "Also: moorage " : ", moorage ").append(typed);
    footer += footer.empty() ? "Example:\n  " : "\n\nExample:\n  ";
    for (const char c : command_->example) footer += c == '\n' ? "\n  " : std::string(1, c);
    chosen_->footer(footer);
  }
  Error unexpected(const std::string& word) const;

  CLI::App app_;
  CLI::App* chosen_ = nullptr;
  const Command* command_;
  std::string before_ = "moorage";
  std::vector<ToldOption> told_;
  Action action_;
};

Error CommandLine::unexpected(const std::string& word) const {
  const std::string name = before_ + (command_ ? " " + std::string(chosen_->get_name()) : "");
  std::string hint = name + " --help";
  if (!word.starts_with("-"))
    return Error(Code::invalid_argument, "unexpected argument '" + word + "'", hint);
  std::vector<std::string> names;
  for (const auto& options : {told_, global_options()}) {
    for (const ToldOption& option : options) {
      if (!option.is_argument) names.push_back(names_of(option).back());
    }
  }
  const auto meant =
      base::nearest_spelling(word.substr(0, word.find('=')), {names.begin(), names.end()});
  if (word.starts_with("--") && meant) hint = "did you mean " + *meant + "? " + hint;
  return Error(Code::invalid_argument, name + " has no option " + word, hint);
}

void report(const Error& error, const Context& context) {
  if (context.json) {
    JsonObject json;
    json.add("code", base::code_name(error.code()))
        .add("message", printable_lines(error.message()))
        .add("hint", printable_lines(error.hint()));
    base::write_all(STDERR_FILENO, json.str() + "\n");
    return;
  }
  // Messages of git and of the kernel may have several lines: keep them, indented.
  const std::string& message = error.message();
  std::string text = "moorage: ";
  for (size_t at = 0, end; at <= message.size(); at = end + 1) {
    end = std::min(message.find('\n', at), message.size());
    text += (at == 0 ? "" : "         ") + printable(message.substr(at, end - at)) + "\n";
  }
  if (!error.hint().empty()) text += "  hint: " + printable(error.hint()) + "\n";
  base::write_all(STDERR_FILENO, text);
}

Error CommandLine::explain(const CLI::ParseError& error) const {
  const auto code = static_cast<CLI::ExitCodes>(error.get_exit_code());
  const auto extra = app_.remaining(true);
  // A missing argument comes before unknown options, and may be their consequence.
  const bool is_extra =
      code == CLI::ExitCodes::ExtrasError ||
      (code == CLI::ExitCodes::RequiredError && !extra.empty() && extra[0].starts_with("-"));
  if (is_extra && !extra.empty()) return unexpected(extra[0]);
  std::string message = error.what();
  if (code == CLI::ExitCodes::ArgumentMismatch)
    message = message.substr(0, message.find(':')) + " needs a value";
  const std::string command = command_ == nullptr ? "" : " " + std::string(command_->name);
  return Error(Code::invalid_argument, message, "moorage" + command + " --help");
}

// Puts the lease into the environment, where every connection and every child process finds it.
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

// "snapshot ls NAME" is a snapshot of the workspace "ls": where that fails, another command was
// meant.
Error with_way(const Error& error, const Words& words) {
  const Words plain = plain_words(words);
  if (plain.size() < 2) return error;
  const bool too_many = error.code() == Code::invalid_argument && plain.size() > 3;
  if (error.code() != Code::not_found && !too_many) return error;
  const auto way = way_without(plain[0] + " " + plain[1], plain.size() > 2 ? plain[2] : "");
  return way ? Error(error.code(), error.message(), *way) : error;
}

bool wants_help(const Words& words) {
  return std::any_of(words.begin(), words.end(),
                     [](const std::string& word) { return word == "-h" || word == "--help"; });
}

int parse_and_run(Context& context, const Command* command, const Words& words) {
  CommandLine line(context, command);
  Action action;
  try {
    action = line.parse(words);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() != static_cast<int>(CLI::ExitCodes::Success))
      throw line.explain(error);
    action = nullptr;  // --help
  }
  if (!action) {
    context.print(line.help());
    return 0;
  }
  if (context.socket.empty()) context.socket = kDefaultSocket;
  find_lease(context);
  return action(context);
}

int run(Context& context, Words words) {
  if (words == Words{"--version"} || words == Words{"-v"}) words = {"version"};
  words = without_aliases(std::move(words));
  const Command* chosen = find_command(words);
  const int failed = chosen != nullptr && chosen->runs_command ? kFailedToRun : kFailed;
  const Words typed = words;
  // Before the parser sees it: its refusals are JSON, too.
  const auto mark = std::find(words.begin(), words.end(), "--");
  context.json = std::find(words.begin(), mark, "--json") != mark;
  try {
    mark_sandbox_command(words, chosen);
    context.command = take_sandbox_command(words, chosen);
    if (chosen == nullptr) refuse_unknown_command(words, wants_help(words));
    if (const Words plain = plain_words(words); chosen == nullptr && !plain.empty()) {
      context.print(group_page(plain[0]));
      return 0;
    }
    refuse_missing_values(words);
    return parse_and_run(context, chosen, words);
  } catch (const Error& error) {
    report(with_way(with_typed_options(error, typed), typed), context);
  } catch (const std::exception& error) {
    report(Error(Code::internal, error.what(), "this is a bug in moorage"), context);
  }
  return failed;
}

}  // namespace

std::string help_of(const Command& command) {
  Context context;
  return CommandLine(context, &command).help();
}

std::vector<ToldOption> global_options() {
  Context context;
  auto told = told_by([&](Options& options) { declare_global_options(options, context); });
  told.insert(told.begin(), ToldOption{.text = {"-h,--help", "", kHelp}});
  return told;
}

int run_command_line(const Words& words) {
  try {
    base::fill_standard_fds();
    Context context;
    return run(context, words);
  } catch (const std::exception&) {
    return kFailed;  // standard error cannot be written either
  }
}

}  // namespace moorage::cli
