// The options of one command, declared once and parsed by CLI11, which only options.cc and
// command_line.cc include. The variables bound here must outlive the parse: commands keep them in a
// struct that their action shares.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <type_traits>
#include <vector>

#include "base/error.h"

namespace CLI {
class App;
}

namespace moorage::cli {

class Context;

// Runs a command after its options are parsed; returns the exit code.
using Action = std::function<int(Context&)>;

struct OptionText {
  std::string names;  // "--repo" or "-f,--follow" or, for an argument, "NAME"
  std::string
      placeholder;  // "URL"; empty for flags; for an argument its kind, if NAME does not say it
  std::string help;
  std::string also = {};  // names from other programs: accepted, and in no help
};

// A declared option or argument, for completion, help and the manual pages.
struct ToldOption {
  OptionText text;
  bool is_argument = false;
  bool takes_value = false;
  bool repeats = false;
  bool required = false;
};

class Options {
 public:
  explicit Options(CLI::App& app) : app_(app) {}

  void flag(const OptionText& text, bool& to);
  // An empty value of any of these is refused.
  void value(const OptionText& text, std::string& to);
  void values(const OptionText& text, std::vector<std::string>& to);  // may be repeated
  void argument(const OptionText& text, std::string& to, bool required = true);
  void optional_argument(const OptionText& text, std::string& to) { argument(text, to, false); }
  // All remaining words; at least one if required.
  void arguments(const OptionText& text, std::vector<std::string>& to, bool required = false);
  void required_arguments(const OptionText& text, std::vector<std::string>& to) {
    arguments(text, to, true);
  }
  // Accepts a flag of other programs that changes nothing here.
  void without_effect(const std::string& name);
  // For options that people guess and that cannot work: throws `why` where one is typed.
  void refused(const std::string& name, bool takes_value, const Error& why);
  const std::vector<ToldOption>& told() const { return told_; }

 private:
  CLI::App& app_;
  std::vector<ToldOption> told_;
};

// These make the action that runs a command with its options. A command that returns nothing exits
// with 0.
template <typename Given, typename Run>
Action run_with(const std::shared_ptr<Given>& given, Run run) {
  return [given, run](Context& context) -> int {
    if constexpr (std::is_void_v<decltype(run(context, *given))>) {
      run(context, *given);
      return 0;
    } else {
      return run(context, *given);
    }
  };
}

// With a struct of options that declares itself.
template <typename Given, typename Run>
Action run_with(Options& options, Run run) {
  auto given = std::make_shared<Given>();
  given->declare(options);
  return run_with(given, run);
}

// With one argument.
template <typename Run>
Action run_with_argument(Options& options, const OptionText& text, Run run) {
  auto given = std::make_shared<std::string>();
  options.argument(text, *given);
  return run_with(given, run);
}

template <typename Run>
Action run_with_workspace(Options& options, Run run) {
  return run_with_argument(options, {"NAME", "", "The workspace"}, run);
}

// The options and arguments that `declare` declares, in its order; nothing is parsed.
std::vector<ToldOption> told_by(const std::function<void(Options&)>& declare);
std::vector<std::string> names_of(const ToldOption& option);  // "-f", "--follow"
// By its names or those from other programs; nullptr when none has it. Arguments have none.
const ToldOption* find_option(const std::vector<ToldOption>& options, const std::string& name);

// typed_options.cc. The daemon's refusals name the fields of its API: names the options that a
// person typed instead. A field is renamed only when its option is among `words`.
Error with_typed_options(const Error& error, const std::vector<std::string>& words);

}  // namespace moorage::cli
